//! Formatted numbers.

use crate::view::visible::visible;

/// Bytes with a decimal unit.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1_000 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1e3, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = if value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Seconds, from milliseconds to days.
pub(crate) fn seconds(secs: f64) -> String {
    let whole = secs.round() as u64;
    match secs {
        s if s < 0.0995 => format!("{:.1} ms", s * 1e3),
        s if s < 9.95 => format!("{s:.2} s"),
        s if s < 99.5 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{} min {:02} s", whole / 60, whole % 60),
        s if s < 172_800.0 => format!("{} h {:02} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{:.1} days", secs / 86_400.0),
    }
}

/// An integer with thousands separators.
pub(crate) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 client`, `2 clients`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    let end = match (n, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{end}", thousands(n))
}

/// A share as a percentage with two decimals.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// At most `most` characters of a text, with an ellipsis if it is longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Lines of at most `width` characters, broken at spaces, safe for a terminal. A longer word gets its own line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in visible(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |got: String, want: &str| assert_eq!(got, want);
        check(bytes(999), "999 B");
        check(bytes(1_000), "1.0 kB");
        check(bytes(999_600), "1.0 MB");
        check(bytes(123_456_789), "123 MB");
        check(seconds(0.0123), "12.3 ms");
        check(seconds(1.5), "1.50 s");
        check(seconds(125.2), "2 min 05 s");
        check(seconds(7_260.0), "2 h 01 min");
        check(thousands(1_234_567), "1,234,567");
        check(thousands(12), "12");
        check(plural(1, "client"), "1 client");
        check(percent(0.8123), "81.23 %");
        assert_eq!(wrap("one two  three fourteen x", 7), ["one two", "three", "fourteen", "x"]);
        assert!(wrap(" ", 7).is_empty());
    }
}
