//! The record of a run: read, compared and shown on a page.

use fedelity_record::{names, rounds_csv, salvage_rounds};
use fedelity_report::{Comparison, LoadedRuns, Options, ReportPage, Results, TableSyntax, render};

use crate::Read;
use crate::place::{Place, seed};

/// The files of a run folder that are seeds, by their names there.
pub const RECORDS: [(&str, &str); 6] = [
    (names::ROUNDS, "rounds/valid.jsonl"),
    (names::SUMMARY, "summary/valid.json"),
    (names::HOLDINGS, "holdings/valid.json"),
    (names::CLIENTS, "clients/valid.json"),
    (names::TAGS, "tags/valid.json"),
    (names::CONFIG, "config/valid-run.toml"),
];

/// A run folder, of which one file varies.
pub(crate) fn record(name: &'static str) -> Read {
    let place = Place::with(&[]);
    RECORDS.iter().for_each(|(name, bytes)| place.write(name, &seed(bytes)));
    Box::new(move |bytes| {
        place.write(name, bytes);
        let loaded = LoadedRuns::load(&[place.folder().to_path_buf()]).map_err(|error| error.to_string())?;
        let salvaged = salvage_rounds(&place.file(names::ROUNDS)).map_err(|error| error.to_string())?;
        let _ = rounds_csv(&salvaged.rounds);
        let results = Results::new(loaded);
        if let Ok(comparison) = Comparison::new(&results, &Options::default()) {
            for syntax in [TableSyntax::Markdown, TableSyntax::Latex, TableSyntax::Csv, TableSyntax::Json] {
                assert!(!render(&comparison, syntax, &[]).is_empty());
            }
        }
        let page = ReportPage::new(&results, None).map_err(|error| error.to_string())?;
        assert!(page.html().ends_with("</html>\n"));
        let left_out: Vec<&str> = page.left_out.iter().map(|out| &*out.what).collect();
        if left_out.is_empty() { Ok(()) } else { Err(left_out.join("; ")) }
    })
}
