//! What a run writes: header, round records, summary.
