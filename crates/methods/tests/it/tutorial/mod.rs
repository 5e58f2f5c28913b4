//! The method that `docs/new-method.md` adds, as a file of `src` would be. The checks of `registry.rs` include it.

mod mine;

pub(crate) use mine::Mine;
