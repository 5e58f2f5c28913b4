//! The size of the terminal.

use std::io::{self, IsTerminal};

/// Available columns: the terminal's, at least 40, or 80 if there is none.
pub(crate) fn width() -> usize {
    size().map_or(80, |(width, _)| width.clamp(40, 200))
}

/// Rows that fit on the screen. `None` if output goes elsewhere and may have any length.
pub(crate) fn height() -> Option<usize> {
    size().map(|(_, height)| height)
}

fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, height)| (usize::from(width.0), usize::from(height.0)))
}
