//! Text from files, made safe for a terminal.
//!
//! Names of methods, classes, columns and files may contain anything. A control character could move the cursor, change
//! the title of a window or send keys, and a character that reverses the direction of writing could make a line look
//! like another. All of them are shown as escapes instead.

use std::borrow::Cow;

/// Text of one or more lines.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && c != '\t' && is_unsafe(c), |c| c.escape_default().to_string())
}

/// Text inside a line.
pub(crate) fn visible_cell(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |c| c.escape_default().to_string())
}

/// The text of a JSON value, which stays the same value.
pub(crate) fn visible_json(text: &str) -> Cow<'_, str> {
    // All of them are inside strings, where a line feed is an escape already, and in the basic plane.
    escaped(text, |c| c != '\n' && is_unsafe(c), |c| format!("\\u{:04x}", u32::from(c)))
}

fn escaped(text: &str, picks: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&picks) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if picks(c) { out.push_str(&escape(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Control characters, separators of lines, and what changes the direction of writing.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_seen_and_not_obeyed() {
        assert_eq!(visible("a\x1b[2J\tb\nc\r\u{9b}1m"), "a\\u{1b}[2J\tb\nc\\r\\u{9b}1m");
        assert_eq!(visible_cell("a\tb\nc\u{202e}d\u{7f}"), "a\\tb\\nc\\u{202e}d\\u{7f}");
        assert!(matches!(visible("plain ± † é 日本"), Cow::Borrowed(_)));
        let text = "x\u{9b}\u{7f}\u{2066}\u{1b}";
        let json = serde_json::to_string(text).unwrap();
        let safe = visible_json(&json);
        assert!(!safe.contains(is_unsafe), "{safe}");
        assert_eq!(visible_json("{\n  \"a\": \"\u{9b}\"\n}"), "{\n  \"a\": \"\\u009b\"\n}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }
}
