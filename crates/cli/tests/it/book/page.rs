//! A page of the book: its fenced blocks, links, headings and inline code.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) struct BookPage {
    /// Relative to the repository, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

/// A fenced block.
pub(super) struct Fence {
    /// The line after the opening fence, counted from 1.
    pub(super) line: usize,
    /// The kind: the first word after the fence.
    pub(super) kind: String,
    /// The rest of that line.
    pub(super) options: String,
    pub(super) text: String,
}

/// A command of a `console` block, and what it prints.
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) output: Vec<String>,
}

impl BookPage {
    pub(super) fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_string(), text }
    }

    /// Every page of the book, and the table of contents.
    pub(super) fn all() -> Vec<Self> {
        let mut found = Vec::new();
        for folder in ["docs", "docs/reference"] {
            for entry in fs::read_dir(root().join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".md") {
                    found.push(format!("{folder}/{name}"));
                }
            }
        }
        found.sort();
        found.iter().map(|path| Self::read(path)).collect()
    }

    pub(super) fn fences(&self) -> Vec<Fence> {
        let mut found: Vec<Fence> = Vec::new();
        let mut open: Option<(usize, Fence)> = None;
        for (at, line) in self.text.lines().enumerate() {
            let bare = line.trim_start();
            let indent = line.len() - bare.len();
            match open.as_mut() {
                None if bare.starts_with("```") => {
                    let info = bare.trim_start_matches('`').trim();
                    let (kind, options) = info.split_once(' ').unwrap_or((info, ""));
                    let (kind, options) = (kind.to_string(), options.trim().to_string());
                    open = Some((indent, Fence { line: at + 2, kind, options, text: String::new() }));
                }
                None => {}
                Some(_) if bare == "```" => found.extend(open.take().map(|(_, fence)| fence)),
                Some((start, fence)) => {
                    fence.text += line.get(*start..).unwrap_or(bare);
                    fence.text += "\n";
                }
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        found
    }

    /// The text outside fenced and indented blocks: blocks become empty lines.
    pub(super) fn prose(&self) -> String {
        let mut is_open = false;
        let mut out = String::new();
        for line in self.text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            if !is_open && !is_fence && !line.starts_with("    ") {
                out += line;
            }
            out += "\n";
            is_open ^= is_fence;
        }
        out
    }

    /// Inline code.
    pub(super) fn spans(&self) -> Vec<String> {
        let prose = self.prose();
        let paragraphs = prose.split("\n\n");
        let odd = |text: &str| text.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
        paragraphs.flat_map(odd).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// The targets of all links and images.
    pub(super) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let code_free: String = prose.split('`').step_by(2).collect();
        let targets = code_free.split("](").skip(1);
        let mut found: Vec<String> = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect();
        found.extend(code_free.split("src=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_string())));
        found
    }

    /// The anchors of its headings.
    pub(super) fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let anchor = |line: &str| {
            let kept = line.trim_start_matches('#').trim().chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
                _ => None,
            });
            kept.collect()
        };
        headings.map(anchor).collect()
    }

    /// The text below a heading, up to the next one.
    pub(super) fn section(&self, heading: &str) -> &str {
        let start = self.text.find(&format!("\n{heading}\n"));
        let start = start.unwrap_or_else(|| panic!("{}: no heading {heading}", self.path)) + heading.len() + 2;
        let rest = &self.text[start..];
        &rest[..rest.find("\n#").unwrap_or(rest.len())]
    }
}

impl Fence {
    /// The value of an option such as `file=a.toml`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        let start = format!("{name}=");
        self.options.split_whitespace().find_map(|word| word.strip_prefix(&start))
    }

    /// Why the commands of the block cannot be run, if they cannot.
    pub(super) fn not_run(&self) -> Option<&str> {
        self.options.strip_prefix("not-run: ")
    }

    /// The commands of a `console` block.
    pub(super) fn commands(&self) -> Vec<Command> {
        let mut found: Vec<Command> = Vec::new();
        let mut goes_on = false;
        for (line, text) in (self.line..).zip(self.text.lines()) {
            match (text.strip_prefix("$ "), found.last_mut()) {
                (Some(text), _) => {
                    goes_on = text.ends_with('\\');
                    found.push(Command { line, text: text.to_string(), output: Vec::new() });
                }
                (None, Some(last)) if goes_on => {
                    goes_on = text.ends_with('\\');
                    last.text = format!("{}\n{text}", last.text);
                }
                (None, Some(last)) => last.output.push(text.trim_end().to_string()),
                (None, None) => panic!("line {line}: a console block starts with a command: {text}"),
            }
        }
        found
    }
}
