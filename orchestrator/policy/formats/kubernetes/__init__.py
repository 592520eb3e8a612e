"""Kubernetes NetworkPolicy (networking.k8s.io/v1), as YAML or JSON."""
