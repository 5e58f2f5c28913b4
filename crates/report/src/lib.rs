//! Turns records of runs into statistics over seeds, tables, figures and a page.
//!
//! [`LoadedRuns::load`] reads what is available in files and lists what was left out; [`LoadedRun::of`] takes a run
//! that has just ended; [`Results::new`] groups runs that differ only in their seed, and groups that differ only in the
//! method into settings; [`Comparison::new`] compares within each setting.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod caption;
mod cards;
mod client_table;
mod compare;
mod conditions;
mod embed;
mod error;
mod figure;
mod judged;
mod loaded;
mod mark;
mod page;
#[cfg(feature = "figures")]
mod plot;
mod progress;
mod published;
mod replication;
mod replication_table;
mod reproduce;
mod results;
mod setting;
mod statistics;
mod table;
mod tuning;

pub use cards::learning_curves;
pub use client_table::ranged;
pub use compare::{BASELINE, Comparison, ComparisonRow, Options, ToTarget};
pub use embed::FeatureLayouts;
pub use error::ReportError;
pub use figure::{Drawing, Figure, FigureCard, MethodStyle, SeedLine, Series};
pub use judged::Judged;
pub use loaded::{LeftOut, LoadedRun, LoadedRuns, config_values, settled};
pub use mark::{Include, MarkKind, REMEDY, RunMark, UNLEARNT_REMEDY};
pub use page::{ReportPage, is_report_page, waiting};
#[cfg(feature = "figures")]
pub use plot::{DrawnFigure, PaperSize};
pub use published::{
    Departure, PublishedCell, PublishedRow, PublishedTable, PublishedValue, Quantity, QuantityKind, WhichModels,
    WhichRound,
};
pub use replication::{
    CellRuns, PairOrder, ReplicatedCell, ReplicatedRow, ReplicatedValue, Replication, RowRuns, Verdict,
};
pub use replication_table::{GAPS, ReplicationSheet, published_cell};
pub use results::{Group, Results};
pub use setting::{Idle, Setting, is_within};
pub use statistics::{Difference, Interval, MeanSd, Test};
pub use table::{AS_IT_IS, TableColumn, TableSyntax, render, spread};
pub use tuning::Tuning;
