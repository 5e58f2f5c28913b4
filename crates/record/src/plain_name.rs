//! Names from records as names of files and folders.

/// Longest name, in characters.
const LONGEST: usize = 100;

/// A name that is one part of a path and leads nowhere else: letters, digits, `-`, `_`, `.` and spaces, not first a dot.
/// Whatever else is in the text becomes `-`; an empty one becomes `-` too.
pub fn plain_name(text: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '-' };
    let name: String = text.trim().trim_start_matches('.').chars().take(LONGEST).map(plain).collect();
    let name = name.trim_end_matches([' ', '.']);
    if name.is_empty() { "-".to_string() } else { name.to_string() }
}

/// A name, then the same with numbers: `a`, `a-2`, `a-3`, ...
pub fn numbered(name: &str) -> impl Iterator<Item = String> + '_ {
    (1..).map(move |n| if n == 1 { name.to_string() } else { format!("{name}-{n}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    #[test]
    fn names_stay_in_their_folder() {
        for text in
            ["../../x", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "C:\\x", "\0", "~", "x\n", "...", ". .", "a/.."]
        {
            let name = plain_name(text);
            let parts: Vec<Component<'_>> = Path::new(&name).components().collect();
            assert!(matches!(parts[..], [Component::Normal(_)]), "{text:?} {name:?}");
            assert!(!name.contains(['/', '\\', '\0', '\n', ':']), "{text:?} {name:?}");
        }
        assert_eq!(plain_name("T-shirt/top"), "T-shirt-top");
        assert_eq!(plain_name("../../x"), "-..-x");
        assert_eq!(plain_name("Ankle boot"), "Ankle boot");
        assert_eq!(plain_name(&"é".repeat(500)).chars().count(), 100);
    }
}
