//! Groups runs that differ only in their seed.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ReportError;
use crate::loaded::{LeftOut, LoadedRun, LoadedRuns};
use crate::setting::{Keys, Setting, fits, identity, mixed, names, settings};

/// Runs with the same settings and different seeds.
#[derive(Clone, Debug)]
pub struct Group {
    /// The method, and the keys that distinguish it from other groups.
    pub label: String,
    /// The same without what distinguishes its setting: unique only there.
    pub name: String,
    /// Its place in [`Results::settings`].
    pub setting: usize,
    /// The method's name in papers, if it is known.
    pub paper: Option<&'static str>,
    /// The runs, by seed.
    pub runs: Vec<LoadedRun>,
}

impl Group {
    pub fn method(&self) -> &str {
        self.runs.first().map_or("", |run| run.header.method.as_str())
    }

    /// The label for people who read papers: FedAvg, not fedavg.
    pub fn title(&self) -> String {
        self.in_papers(&self.label)
    }

    /// The same for the name.
    pub fn short_title(&self) -> String {
        self.in_papers(&self.name)
    }

    fn in_papers(&self, text: &str) -> String {
        match (self.paper, text.strip_prefix(self.method())) {
            (Some(paper), Some(rest)) => format!("{paper}{rest}"),
            _ => text.to_string(),
        }
    }
}

/// All runs, grouped.
#[derive(Clone, Debug)]
pub struct Results {
    /// One group per method and settings: setting by setting, otherwise in the order they were found.
    pub groups: Vec<Group>,
    /// What can be compared; at least one.
    pub settings: Vec<Setting>,
    /// Keys that differ within a setting, as asked for.
    pub mixed: Vec<String>,
    /// The values that keys have by default, by dotted path.
    pub defaults: BTreeMap<String, String>,
    /// What was left out of it.
    pub left_out: Vec<LeftOut>,
}

impl Results {
    /// Groups the runs. Runs that differ in anything beside the method and the seed are in different settings.
    pub fn new(source: LoadedRuns) -> Self {
        Gathered::new(source).within(&BTreeSet::new(), &[])
    }

    /// The same, with settings that ignore some keys or sections. It is an error if the runs do not differ in one.
    pub fn mixing(source: LoadedRuns, mix: &[String]) -> Result<Self, ReportError> {
        let gathered = Gathered::new(source);
        let mixed = mixed(mix, &gathered.keys)?;
        Ok(gathered.within(&mixed, mix))
    }

    /// Runs of one study, by the names of their methods.
    pub fn of(groups: Vec<(String, Vec<LoadedRun>)>) -> Self {
        let group = |(label, runs): (String, _)| Group { name: label.clone(), label, setting: 0, paper: None, runs };
        Self {
            groups: groups.into_iter().map(group).collect(),
            settings: vec![Setting::default()],
            mixed: Vec::new(),
            defaults: BTreeMap::new(),
            left_out: Vec::new(),
        }
    }

    /// The same, with the names that methods have in papers, by their ID.
    pub fn named(mut self, of: impl Fn(&str) -> Option<&'static str>) -> Self {
        for group in &mut self.groups {
            group.paper = of(group.method());
        }
        self
    }

    /// The same, with what keys are by default: of several FedAvg in a setting, the one that is nearest to that is the
    /// baseline.
    pub fn usually(mut self, defaults: BTreeMap<String, String>) -> Self {
        self.defaults = defaults;
        self
    }

    pub fn runs(&self) -> impl Iterator<Item = &LoadedRun> {
        self.groups.iter().flat_map(|group| &group.runs)
    }

    /// The groups of a setting.
    pub fn of_setting(&self, setting: usize) -> Vec<&Group> {
        self.groups.iter().filter(|group| group.setting == setting).collect()
    }
}

/// Runs by what determines their results.
struct Gathered {
    /// Of each group, its keys, and whether all its configurations are lost.
    keys: Vec<(Keys, bool)>,
    runs: Vec<Vec<LoadedRun>>,
    left_out: Vec<LeftOut>,
}

impl Gathered {
    fn new(source: LoadedRuns) -> Self {
        let LoadedRuns { mut runs, left_out } = source;
        let mut new = Self { keys: Vec::new(), runs: Vec::new(), left_out };
        // A run whose configuration is lost joins the group that its record matches.
        runs.sort_by_key(|run| run.config.is_empty());
        for run in runs {
            let (key, lost) = (identity(&run), run.config.is_empty());
            let same = |(known, _): &(Keys, bool)| if lost { fits(&key, known) } else { *known == key };
            match new.keys.iter().position(same) {
                Some(at) => new.join(at, run),
                None => {
                    new.keys.push((key, lost));
                    new.runs.push(vec![run]);
                }
            }
        }
        new
    }

    /// Adds a run to a group. Of two with the same seed, the one that got further counts; in a tie, the later one.
    fn join(&mut self, at: usize, run: LoadedRun) {
        let same = &mut self.runs[at];
        let Some(other) = same.iter_mut().find(|other| other.header.seed == run.header.seed) else {
            return same.push(run);
        };
        let further = run.rounds.len() >= other.rounds.len();
        let twice = if further { std::mem::replace(other, run) } else { run };
        let what = format!("seed {} occurs twice; this run is left out", twice.header.seed);
        self.left_out.push(LeftOut { path: twice.path, what });
    }

    fn within(self, mixed: &BTreeSet<String>, mix: &[String]) -> Results {
        let (settings, of) = settings(&self.keys, mixed);
        let names = names(&self.keys, &of, mixed);
        let group = |(mut runs, (name, setting)): (Vec<LoadedRun>, (String, usize))| {
            runs.sort_by_key(|run| run.header.seed);
            let label = format!("{name} {}", settings[setting].label).trim_end().to_string();
            Group { label, name, setting, paper: None, runs }
        };
        let mut groups: Vec<Group> = self.runs.into_iter().zip(names.into_iter().zip(of)).map(group).collect();
        groups.sort_by_key(|group| group.setting);
        let (mixed, defaults) = (mix.to_vec(), BTreeMap::new());
        Results { groups, settings, mixed, defaults, left_out: self.left_out }
    }
}
