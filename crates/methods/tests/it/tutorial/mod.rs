//! The method that `docs/new-method.md` adds, as a file of `src` would be. The checks of `registry.rs` include it.

#[allow(unreachable_pub, reason = "in `src`, the macro of the registry exports it")]
mod mine;

pub(crate) use mine::Mine;
