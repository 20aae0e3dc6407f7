"""What Kubernetes objects are: kinds, schemas, validation, patches and wire forms. Pure: no I/O, no clock."""
