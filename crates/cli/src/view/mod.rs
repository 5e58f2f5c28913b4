//! User-facing output: progress, tables, pictures, formatted numbers.

pub(crate) mod board;
pub(crate) mod heatmap;
pub(crate) mod progress;
pub(crate) mod replication;
pub(crate) mod results;
pub(crate) mod scores;
pub(crate) mod sheet;
pub(crate) mod sparkline;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod units;
pub(crate) mod visible;

pub use results::result_lines;
