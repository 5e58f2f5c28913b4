//! All printing. Data go to stdout, messages to stderr; the rest of the program prints through this module.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use fedelity_data::Skipped;
use fedelity_report::TableSyntax;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Serialize;

use crate::view::units::shortened;
use crate::view::visible::{visible, visible_cell, visible_json};

/// Characters of a warning or an error.
const LONGEST: usize = 4_000;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always, even to files and pipes.
    Always,
    Never,
}

/// Semantic colours. Every message reads the same without them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Error,
    Warning,
    Heading,
}

/// Where output goes, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    quiet: bool,
    verbose: bool,
    colour_out: bool,
    colour_err: bool,
    /// Whether a bar can be drawn on stderr without anything else writing there.
    can_draw: bool,
}

impl Printer {
    pub(crate) fn new(when: When, quiet: bool, verbose: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let colour = |terminal: bool| match when {
            When::Auto => terminal && !no_color && !dumb,
            When::Always => true,
            When::Never => false,
        };
        Self {
            quiet,
            verbose,
            colour_out: colour(io::stdout().is_terminal()),
            colour_err: colour(io::stderr().is_terminal()),
            can_draw: io::stderr().is_terminal() && !dumb,
        }
    }

    /// The same for a command that prints data continually: its reader may write to the same terminal.
    pub(crate) fn with_data(self) -> Self {
        Self { can_draw: self.can_draw && io::stdout().is_terminal(), ..self }
    }

    /// Whether stdout takes colour.
    pub(crate) fn colour(&self) -> bool {
        self.colour_out
    }

    /// Whether a live display makes sense: a terminal that nothing else writes to.
    pub(crate) fn live(&self) -> bool {
        !self.quiet && !self.verbose && self.can_draw
    }

    pub(crate) fn verbose(&self) -> bool {
        self.verbose
    }

    /// A line of data.
    pub(crate) fn line(&self, text: impl Display) -> Result<()> {
        writeln!(io::stdout().lock(), "{}", visible(&text.to_string()))?;
        Ok(())
    }

    /// A line that is a heading.
    pub(crate) fn heading(&self, text: &str) -> Result<()> {
        writeln!(io::stdout().lock(), "{}", self.paint(Style::Heading, &visible_cell(text)))?;
        Ok(())
    }

    /// Lines of a table or a picture: they may have colours, and text from files is already safe in them.
    pub(crate) fn drawn(&self, lines: Vec<String>) -> Result<()> {
        let mut out = io::stdout().lock();
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(())
    }

    /// One JSON object on one line.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", visible_json(&text))?;
        out.flush()?;
        Ok(())
    }

    /// Text for another program, unchanged unless a terminal gets it.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<()> {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            out.write_all(visible(&String::from_utf8_lossy(bytes)).as_bytes())?;
        } else {
            out.write_all(bytes)?;
        }
        Ok(())
    }

    /// A table in some syntax. What names from files could do to a terminal is escaped where that changes nothing else: cells of CSV
    /// are data.
    pub(crate) fn rendered(&self, text: &str, syntax: TableSyntax) -> Result<()> {
        match syntax {
            TableSyntax::Json => self.raw(visible_json(text).as_bytes()),
            TableSyntax::Markdown | TableSyntax::Latex => self.raw(visible(text).as_bytes()),
            TableSyntax::Csv => self.raw(text.as_bytes()),
        }
    }

    /// Prints a message. It is not an error if nobody reads it.
    pub(crate) fn say(&self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{}", visible(&text.to_string()));
        }
    }

    /// A message for `-v`.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.verbose {
            self.say(text);
        }
    }

    pub(crate) fn warn(&self, text: impl Display) {
        if !self.quiet {
            self.marked(Style::Warning, "warning:", text);
        }
    }

    /// Reports skipped samples even when quiet: nothing goes missing silently.
    pub(crate) fn left_out(&self, skipped: &Skipped) {
        if let Some(note) = skipped.note() {
            self.marked(Style::Warning, "warning:", note);
        }
    }

    /// Errors are printed even when quiet.
    pub(crate) fn error(&self, text: impl Display) {
        self.marked(Style::Error, "error:", text);
    }

    fn marked(&self, style: Style, mark: &str, text: impl Display) {
        let mark = paint(self.colour_err, style, mark);
        // A cell of a table may be as long as its file.
        let text = shortened(&text.to_string(), LONGEST);
        let _ = writeln!(io::stderr().lock(), "{mark} {}", visible(&text));
    }

    /// A bar on stderr, hidden unless the display is live.
    pub(crate) fn bar(&self, length: u64) -> ProgressBar {
        let target = if self.live() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        ProgressBar::with_draw_target(Some(length), target)
    }

    /// Text for stdout in a style.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        paint(self.colour_out, style, text)
    }
}

fn paint(colour: bool, style: Style, text: &str) -> String {
    if !colour {
        return text.to_string();
    }
    let code = match style {
        Style::Error => "1;31",
        Style::Warning => "1;33",
        Style::Heading => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// An error with its causes, omitting causes that the preceding text already ends with.
pub(crate) fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match &text[..] {
        "" => cause,
        before if before.ends_with(&cause) => text,
        before => format!("{before}: {cause}"),
    })
}

/// The kind of a failed read or write, if that is the error.
pub(crate) fn io_kind(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|cause| {
        let of_json = || cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(of_json)
    })
}
