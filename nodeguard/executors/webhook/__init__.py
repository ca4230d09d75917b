"""The executor that posts the marks of nodes to a webhook: with it any scheduler can be driven."""
