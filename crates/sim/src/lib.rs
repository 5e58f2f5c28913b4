//! Runs federated rounds in one process on worker threads.
