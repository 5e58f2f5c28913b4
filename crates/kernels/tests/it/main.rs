//! Every kernel against its plain version, on every instruction set of the machine.

mod common;
mod conv;
mod norm;
mod optimise;
mod pool;
mod reference;
mod rows;
mod text;
