"""The glossary as frozen data. It imports no other package of nodeguard."""
