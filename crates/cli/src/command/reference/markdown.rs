//! A page of Markdown while it is written.

pub(super) struct Markdown(String);

impl Markdown {
    pub(super) fn new(title: &str) -> Self {
        Self(format!("# {title}\n"))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0 += &format!("\n## {title}\n");
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.0 += &format!("\n{text}\n");
    }

    /// Facts with their names.
    pub(super) fn list<const N: usize>(&mut self, facts: [(&str, String); N]) {
        self.0 += "\n";
        facts.iter().for_each(|(name, text)| self.0 += &format!("- **{name}:** {text}\n"));
    }

    /// Text as it is, line by line.
    pub(super) fn verbatim<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.0 += "\n";
        lines.into_iter().for_each(|line| self.0 += &format!("    {line}\n"));
    }

    /// A table of cells that are Markdown without bars and line breaks. No table without rows.
    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        self.0 += "\n";
        self.0 += &line(&head.map(String::from));
        self.0 += &format!("|{}\n", "---|".repeat(N));
        rows.for_each(|row| self.0 += &line(&row.map(|cell| cell.replace('|', "\\|").replace('\n', " "))));
    }
}

/// Plain text in which no character is Markdown.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut is_code = false;
    for c in text.chars() {
        is_code ^= c == '`';
        match c {
            '<' if !is_code => out += "&lt;",
            '*' | '[' | ']' | '_' if !is_code => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// As code.
pub(super) fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_markdown() {
        assert_eq!(plain("tau^2 * [x]_1 < `a*b`"), "tau^2 \\* \\[x\\]\\_1 &lt; `a*b`");
        let mut page = Markdown::new("A");
        page.table(["b"], [["x|y".to_string()]]);
        page.table(["c"], []);
        page.verbatim(["d"]);
        assert_eq!(page.text(), "# A\n\n| b |\n|---|\n| x\\|y |\n\n    d\n");
    }
}
