"""The Kubernetes API: Nodes, marks, devices, incidents, Events and the Lease. Nothing else speaks to it."""
