//! The modules of a network, as a tree of names.

use std::fmt::Write as _;

/// Modules by name, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Modules(Vec<(String, ModuleEntry)>);

#[derive(Debug)]
enum ModuleEntry {
    /// A module, as Python creates it.
    Module(String),
    Inside(Modules),
}

impl Modules {
    /// Adds a module under a dotted name. Returns the expression that refers to it.
    pub(crate) fn add(&mut self, name: &str, module: String) -> String {
        self.insert(name, module);
        expression(name)
    }

    fn insert(&mut self, name: &str, module: String) {
        let Some((first, rest)) = name.split_once('.') else {
            self.0.push((name.to_owned(), ModuleEntry::Module(module)));
            return;
        };
        let found = self.0.iter_mut().find_map(|(name, entry)| match entry {
            ModuleEntry::Inside(modules) if name == first => Some(modules),
            ModuleEntry::Inside(_) | ModuleEntry::Module(_) => None,
        });
        if let Some(modules) = found {
            modules.insert(rest, module);
        } else {
            let mut modules = Self::default();
            modules.insert(rest, module);
            self.0.push((first.to_owned(), ModuleEntry::Inside(modules)));
        }
    }

    /// Writes the assignments of a module's `__init__`.
    pub(crate) fn write(&self, out: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        for (name, entry) in &self.0 {
            match entry {
                ModuleEntry::Module(module) => {
                    let _ = writeln!(out, "{indent}self.{name} = {module}");
                }
                ModuleEntry::Inside(modules) => {
                    let _ = writeln!(out, "{indent}self.{name} = nn.ModuleDict({{");
                    modules.write_inside(out, depth + 1);
                    let _ = writeln!(out, "{indent}}})");
                }
            }
        }
    }

    fn write_inside(&self, out: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        for (name, entry) in &self.0 {
            match entry {
                ModuleEntry::Module(module) => {
                    let _ = writeln!(out, "{indent}\"{name}\": {module},");
                }
                ModuleEntry::Inside(modules) => {
                    let _ = writeln!(out, "{indent}\"{name}\": nn.ModuleDict({{");
                    modules.write_inside(out, depth + 1);
                    let _ = writeln!(out, "{indent}}}),");
                }
            }
        }
    }
}

/// `a.0.b` as `self.a["0"]["b"]`.
fn expression(name: &str) -> String {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let rest: String = rest.split('.').filter(|part| !part.is_empty()).map(|part| format!("[\"{part}\"]")).collect();
    format!("self.{first}{rest}")
}
