//! Groups runs that differ only in their seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fedelity_record::names::CHOSEN;

use crate::error::ReportError;
use crate::loaded::{LeftOut, LoadedRun, LoadedRuns};
use crate::setting::{GroupKeys, Idle, Setting, labels, mixed, names, settings};
use crate::tuning::Tuning;

/// Runs with the same settings and different seeds.
#[derive(Clone, Debug)]
pub struct Group {
    /// The method, and what distinguishes it from other groups.
    pub label: String,
    /// The same without what distinguishes its setting: unique only there.
    pub name: String,
    /// What was chosen for the method, if it was tuned; empty if it stays as it is.
    pub chosen: Option<String>,
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
    /// What was to be mixed, too, but does not differ.
    pub idle: Vec<Idle>,
    /// The values that keys have by default, by dotted path.
    pub defaults: BTreeMap<String, String>,
    /// What was left out of it.
    pub left_out: Vec<LeftOut>,
}

impl Results {
    /// Groups the runs. Runs that differ in anything beside the method and the seed are in different settings.
    pub fn new(source: LoadedRuns) -> Self {
        Gathered::new(source).within(&BTreeSet::new(), &[], Vec::new())
    }

    /// The same, with settings that ignore some keys or sections.
    pub fn mixing(source: LoadedRuns, mix: &[String]) -> Result<Self, ReportError> {
        let gathered = Gathered::new(source);
        let (mixed, idle) = mixed(mix, &gathered.keys)?;
        let mix: Vec<String> = mix.iter().filter(|name| idle.iter().all(|idle| idle.name != **name)).cloned().collect();
        Ok(gathered.within(&mixed, &mix, idle))
    }

    /// Runs of one study, by the names of their methods.
    pub fn of(groups: Vec<(String, Vec<LoadedRun>)>) -> Self {
        let group = |(label, runs): (String, _)| {
            let (name, chosen) = (label.clone(), None);
            Group { label, name, chosen, setting: 0, paper: None, runs }
        };
        Self {
            groups: groups.into_iter().map(group).collect(),
            settings: vec![Setting::default()],
            mixed: Vec::new(),
            idle: Vec::new(),
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

    /// The keys that were tuned for some method.
    pub fn tuned(&self) -> BTreeSet<&str> {
        let tuned = self.runs().filter_map(|run| run.tuning.as_ref()).filter(|tuning| !tuning.chooses);
        tuned.flat_map(|tuning| &tuning.keys).map(String::as_str).collect()
    }

    /// The groups of a setting.
    pub fn of_setting(&self, setting: usize) -> Vec<&Group> {
        self.groups.iter().filter(|group| group.setting == setting).collect()
    }
}

/// Leaves out the runs of settings that a sweep does not choose any more, unless nothing else of it is there.
fn leave_out_outdated(runs: &mut Vec<LoadedRun>, left_out: &mut Vec<LeftOut>) {
    let tuned = || runs.iter().filter_map(|run| run.tuning.as_ref());
    let current: BTreeSet<PathBuf> = tuned().filter(|own| !own.outdated).map(|own| own.sweep.clone()).collect();
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    runs.retain(|run| {
        let outdated = run.tuning.as_ref().filter(|own| own.outdated && current.contains(&own.sweep));
        // The folder of the stage, as the user named it.
        let stage = |own: &Tuning| run.path.ancestors().nth(2).unwrap_or(&own.sweep).to_path_buf();
        outdated.map(|own| *counts.entry(stage(own)).or_default() += 1).is_none()
    });
    left_out.extend(counts.into_iter().map(|(path, count)| {
        let runs = if count == 1 {
            "1 run of an earlier choice is"
        } else {
            &format!("{count} runs of an earlier choice are")
        };
        LeftOut { path, what: format!("{runs} left out: {CHOSEN} of the sweep does not name their settings any more") }
    }));
}

/// Runs by what determines their results.
struct Gathered {
    /// Of each group, its keys.
    keys: Vec<GroupKeys>,
    runs: Vec<Vec<LoadedRun>>,
    left_out: Vec<LeftOut>,
}

impl Gathered {
    fn new(source: LoadedRuns) -> Self {
        let LoadedRuns { mut runs, mut left_out } = source;
        leave_out_outdated(&mut runs, &mut left_out);
        let mut new = Self { keys: Vec::new(), runs: Vec::new(), left_out };
        // Runs that chose settings were not tested on the test data: beside those that they chose, they are not results.
        let is_compared = |tuning: &&Tuning| !tuning.chooses;
        let compared: BTreeSet<PathBuf> = runs
            .iter()
            .filter_map(|run| run.tuning.as_ref())
            .filter(is_compared)
            .map(|own| own.sweep.clone())
            .collect();
        runs.retain(|run| !run.tuning.as_ref().is_some_and(|own| own.chooses && compared.contains(&own.sweep)));
        // Tuned methods are in the order of their sweep, which their folders do not tell.
        runs.sort_by_key(|run| run.tuning.as_ref().map_or(0, |own| own.place));
        // A run whose configuration is lost joins the group that its record matches.
        runs.sort_by_key(|run| run.config.is_empty());
        for run in runs {
            let keys = GroupKeys::of(&run);
            match new.keys.iter().position(|known| known.takes(&keys)) {
                Some(at) => new.join(at, run),
                None => {
                    new.keys.push(keys);
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

    fn within(self, mixed: &BTreeSet<String>, mix: &[String], idle: Vec<Idle>) -> Results {
        let (settings, of) = settings(&self.keys, mixed);
        let names = names(&self.keys, &of, mixed);
        let mut groups = Vec::new();
        let labels = labels(&names, &of, &settings);
        for ((mut runs, keys), ((name, label), setting)) in
            self.runs.into_iter().zip(&self.keys).zip(names.into_iter().zip(labels).zip(of))
        {
            runs.sort_by_key(|run| run.header.seed);
            groups.push(Group { label, name, chosen: keys.chosen(), setting, paper: None, runs });
        }
        groups.sort_by_key(|group| group.setting);
        let (mixed, defaults) = (mix.to_vec(), BTreeMap::new());
        Results { groups, settings, mixed, idle, defaults, left_out: self.left_out }
    }
}
