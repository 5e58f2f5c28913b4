//! One file per federated method, and the registry.
