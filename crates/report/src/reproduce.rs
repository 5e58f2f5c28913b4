//! How to repeat the runs of a study: the version, one configuration for as many of them as possible, and the commands.

use toml::{Table, Value};

use crate::cards::slug;
use crate::results::{Group, Results};

/// What a reader needs who has neither the run folders nor the files that they were made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recipe {
    /// Facts that identify the program, the data and the computer.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) commands: Vec<String>,
    /// Configurations: their names, what they are for, and their text.
    pub(crate) files: Vec<(String, String, String)>,
}

/// A configuration that stands for several runs.
struct Part<'a> {
    groups: Vec<&'a Group>,
    /// Everything except the method and the seeds.
    rest: Table,
    methods: Vec<Value>,
    seeds: Vec<u64>,
}

impl Recipe {
    pub(crate) fn new(study: &Results, facts: Vec<(String, String)>) -> Self {
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut commands = Vec::new();
        for group in &study.groups {
            let seeds: Vec<u64> = group.runs.iter().map(|run| run.header.seed).collect();
            let text = group.runs.iter().map(|run| run.config_text.as_str()).find(|text| !text.is_empty());
            let Some(mut rest) = text.and_then(|text| text.parse::<Table>().ok()) else { continue };
            let Some(method) = rest.remove("method") else { continue };
            rest.remove("seeds");
            match parts.iter_mut().find(|part| part.rest == rest && part.seeds == seeds) {
                Some(part) => {
                    part.groups.push(group);
                    part.methods.push(method);
                }
                None => parts.push(Part { groups: vec![group], rest, methods: vec![method], seeds }),
            }
        }
        let (mut files, mut taken) = (Vec::new(), Vec::new());
        let alone = parts.len() == 1;
        for part in parts {
            let titles: Vec<String> = part.groups.iter().map(|group| group.title()).collect();
            let name = if alone { "study".to_string() } else { slug(&titles.join(" "), &taken) };
            taken.push(name.clone());
            let seeds: Vec<String> = part.seeds.iter().map(u64::to_string).collect();
            let file = format!("{name}.toml");
            let of = format!("{}, seeds {}", titles.join(", "), seeds.join(", "));
            // Samples at sites are not in the configuration: nothing here can repeat their training.
            if part
                .groups
                .iter()
                .flat_map(|group| &group.runs)
                .all(|run| !run.header.federated || !run.header.command.is_empty())
            {
                commands.push(format!("fedelity run {file}"));
            }
            files.push((file, of, part.text()));
        }
        Self { facts, commands, files }
    }
}

impl Part<'_> {
    fn text(self) -> String {
        let mut table = self.rest;
        let number = |seed: &u64| i64::try_from(*seed).map_or_else(|_| Value::String(seed.to_string()), Value::Integer);
        table.insert("seeds".to_string(), Value::Array(self.seeds.iter().map(number).collect()));
        let mut methods = self.methods;
        let method = if methods.len() == 1 { methods.remove(0) } else { Value::Array(methods) };
        table.insert("method".to_string(), method);
        toml::to_string(&table).unwrap_or_default()
    }
}
