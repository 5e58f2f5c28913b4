//! Settings written back as TOML, so that the file alone repeats the run.

use std::fmt::Write as _;

use toml::Value;

use super::settings::{Method, PerRound, Rule, Settings};

/// Keys and values in the order they are written in.
type Pairs = Vec<(String, Value)>;

impl Settings {
    /// The whole configuration with every default filled in. A partition that was read from a file is named
    /// `partition_file`, relative to the folder of the configuration.
    pub(crate) fn resolved(&self, partition_file: &str) -> String {
        self.resolved_for(&self.methods, &self.seeds, partition_file)
    }

    /// As [`Self::resolved`], for some of the methods and seeds.
    pub(crate) fn resolved_for(&self, methods: &[Method], seeds: &[u64], partition_file: &str) -> String {
        let seeds = seeds.iter().map(|&seed| Value::Integer(seed as i64)).collect();
        let mut out = String::new();
        write(&mut out, "", vec![pair("rounds", whole(self.rounds)), pair("seeds", Value::Array(seeds))]);
        write(&mut out, "[data]", self.data.pairs());
        write(&mut out, "[partition]", self.partition.pairs(partition_file));
        write(&mut out, "[clients]", self.clients());
        write(&mut out, "[optimizer]", self.optimizer());
        write(&mut out, "[model]", self.model());
        write(&mut out, "[server]", self.server.pairs());
        for method in methods {
            let mut pairs = vec![pair("name", text(method.name))];
            pairs.extend(method.keys.iter().map(|(key, value)| (key.clone(), value.clone())));
            write(&mut out, if methods.len() == 1 { "[method]" } else { "[[method]]" }, pairs);
        }
        write(&mut out, "[evaluation]", self.evaluation());
        out
    }

    fn evaluation(&self) -> Pairs {
        let observation = &self.observation;
        let confusion = observation.confusion.iter().map(|&round| whole(round)).collect();
        let mut pairs = vec![
            pair("every", whole(self.evaluate_every)),
            pair("metrics", text(observation.metrics.name())),
            pair("confusion", Value::Array(confusion)),
        ];
        pairs.extend(observation.client.map(|client| pair("client", whole(client))));
        pairs
    }

    fn model(&self) -> Pairs {
        let mut pairs =
            vec![pair("name", text(&self.model.name)), pair("projection", Value::Boolean(self.model.projection))];
        pairs.extend(self.model.stem.map(|stem| pair("stem", text(stem.name()))));
        let Some(keys) = &self.text else { return pairs };
        match &keys.weights {
            Some(folder) => {
                let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
                pairs.push(pair("weights", text(&folder.display().to_string())));
            }
            None => pairs.push(pair("vocabulary", whole(keys.vocabulary))),
        }
        pairs.push(pair("max-length", whole(keys.max_length)));
        pairs.extend(keys.freeze.map(|n| pair("freeze", whole(n))));
        pairs.extend(keys.dropout.map(|p| pair("dropout", Value::Float(p))));
        pairs
    }

    fn clients(&self) -> Pairs {
        let mut pairs = Vec::new();
        match (self.per_round, self.partition.clients()) {
            (PerRound::Count(n), _) => pairs.push(pair("per-round", whole(n))),
            (PerRound::Fraction(fraction), _) => pairs.push(pair("fraction", Value::Float(fraction))),
            (PerRound::Default, Some(pool)) => pairs.push(pair("per-round", whole(PerRound::Default.of(pool)))),
            (PerRound::Default, None) => {}
        }
        pairs.push(pair("epochs", whole(self.epochs)));
        pairs.push(pair("batch", whole(self.batch)));
        pairs.push(pair("weighting", text(self.weighting.name())));
        pairs.push(pair("teacher-cache", Value::Boolean(self.teacher_cache)));
        pairs
    }

    fn optimizer(&self) -> Pairs {
        let optimizer = &self.optimizer;
        let (kind, own) = match optimizer.rule {
            Rule::Sgd { momentum } => ("sgd", vec![("momentum", momentum)]),
            Rule::Adam { beta1, beta2, eps } => ("adam", vec![("beta1", beta1), ("beta2", beta2), ("eps", eps)]),
        };
        let mut pairs = vec![pair("kind", text(kind)), pair("lr", Value::Float(optimizer.lr))];
        pairs.extend(own.into_iter().map(|(key, value)| pair(key, Value::Float(value))));
        pairs.push(pair("weight-decay", Value::Float(optimizer.weight_decay)));
        pairs.push(pair("lr-decay", Value::Float(optimizer.lr_decay)));
        pairs.extend(optimizer.clip.map(|clip| pair("clip", Value::Float(clip))));
        pairs
    }
}

/// One table with an empty line before it.
fn write(out: &mut String, heading: &str, pairs: Pairs) {
    if !heading.is_empty() {
        let _ = writeln!(out, "\n{heading}");
    }
    for (key, value) in pairs {
        let _ = writeln!(out, "{key} = {value}");
    }
}

fn pair(key: &str, value: Value) -> (String, Value) {
    (key.to_string(), value)
}

fn whole(n: usize) -> Value {
    Value::Integer(n as i64)
}

fn text(text: &str) -> Value {
    Value::String(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::document::Document;
    use super::*;

    /// What is written reads back as the same settings, whatever was set.
    #[test]
    fn resolved_settings_resolve_to_themselves() {
        let cases: &[&[&str]] = &[
            &[],
            &["optimizer.lr=0.037", "optimizer.weight-decay=1e-7", "optimizer.clip=0.1", "seeds=[3, 1]"],
            &["optimizer.kind=adam", "optimizer.eps=1e-9", "clients.fraction=0.3", "clients.weighting=uniform"],
            &["partition.kind=shards", "partition.shards=4", "partition.seed=9"],
            &["partition.kind=labels-per-client", "model.projection=true", "evaluation.every=7"],
            &["partition.kind=dirichlet-equal", "partition.alpha=3", "partition.clients=4"],
            &["partition.file=a b.json", "data.name=cifar10", "data.dir=/x \"y\""],
            &["partition.kind=natural", "partition.seed=3"],
            &["partition.kind=natural", "partition.clients=7", "data.name=csv", "data.train=/a.csv", "data.key=site"],
            &["data.name=jsonl", "data.train=/a", "data.test=/b", "data.features=[\"x\", \"y\"]", "data.skip-bad=true"],
            &["data.name=folder", "data.path=/a", "data.size=[8, 9]", "data.layout=key/class", "data.colour=grey"],
            &["data.name=cifar100", "data.augmentation=moon"],
            &["data.augmentation={crop=2, padding=\"reflect\", flip=true, rotation=7.5, cutout=3}"],
            &["data.normalisation={mean=[0.1307], std=[0.3081]}"],
            &["model.name=lstm", "model.max-length=40", "model.vocabulary=500"],
            &["model.name=minilm", "model.weights=a b", "model.freeze=0", "model.dropout=0.3"],
            &["method=[{name=\"fedavg\"}, {name=\"fedavg\"}]", "clients.teacher-cache=false"],
            &["server.auxiliary=32", "server.auxiliary-keep=true", "server.validation=0.1", "server.unlabelled=7"],
            &["server.optimizer=fedyogi", "server.tau=0.1", "server.rule=krum", "server.keep=2"],
            &["server.optimizer=fedavgm", "server.lr=0.7", "server.rule=trimmed-mean", "server.trim=0.2"],
        ];
        for sets in cases {
            let mut document = Document::default();
            sets.iter().for_each(|set| document.set(set).unwrap());
            let first = Settings::check(&document).unwrap().resolved("a b.json");
            let again = Document::parse("x.toml".to_string(), "".into(), &first).unwrap();
            assert_eq!(Settings::check(&again).unwrap().resolved("a b.json"), first);
        }
    }

    /// Decay inside Adam's quotient would move what has no gradient by the whole learning rate.
    #[test]
    fn adam_does_not_decay_unless_told() {
        let decay = |sets: &[&str]| {
            let mut document = Document::default();
            sets.iter().for_each(|set| document.set(set).unwrap());
            Settings::check(&document).unwrap().optimizer.weight_decay
        };
        assert_eq!(decay(&[]), 1e-5);
        assert_eq!(decay(&["optimizer.kind=adam"]), 0.0);
        assert_eq!(decay(&["optimizer.kind=adam", "optimizer.weight-decay=0.01"]), 0.01);
    }

    #[test]
    fn the_example_says_the_defaults() {
        let text = include_str!("../../../../examples/quickstart.toml");
        let example = Document::parse("quickstart.toml".to_string(), "".into(), text).unwrap();
        let default = Settings::check(&Document::default()).unwrap().resolved("");
        assert_eq!(Settings::check(&example).unwrap().resolved(""), default);
    }
}
