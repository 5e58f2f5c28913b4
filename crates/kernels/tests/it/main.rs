//! Every kernel against its plain version, on every instruction set of the machine.

#![allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions")]

mod common;
mod conv;
mod norm;
mod optimise;
mod pool;
mod reference;
mod rows;
mod text;
