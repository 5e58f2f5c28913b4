//! Records of runs to statistics over seeds, tables, figures and a page.
//!
//! Only files are read, so that an old run can be reported again. [`Source::load`] takes in what there is and says what
//! was left out; [`Study::new`] puts runs that differ in their seed alone together; [`Comparison::new`] compares them.

mod cards;
mod compare;
mod embed;
mod error;
mod figure;
mod page;
mod plot;
mod source;
mod statistics;
mod study;
mod table;

pub use compare::{Comparison, Difference, Options, Row, ToTarget};
pub use embed::Embeddings;
pub use error::Error;
pub use figure::{Card, Drawing, Figure, Series, Style};
pub use page::{Report, waiting};
pub use plot::{png, svg};
pub use source::{LeftOut, Run, Source};
pub use statistics::{Interval, Summary, Test, holm, paired, ranks};
pub use study::{Group, Mismatch, Study};
pub use table::{Format, render};
