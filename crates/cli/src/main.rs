//! The `fedelity` command.

fn main() {}
