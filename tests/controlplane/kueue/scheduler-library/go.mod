module sigs.k8s.io/scheduler-library

go 1.26.0
