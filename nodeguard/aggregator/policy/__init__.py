"""The policy file: read, refused or doubted, adopted, watched."""
