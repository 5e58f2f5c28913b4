//! Configurations, sweeps and presets.

use std::path::PathBuf;

use fedelity_experiment::{Document, Preset, PresetChoice, Settings, Sweep};

use crate::Read;
use crate::place::Place;

/// A configuration. Written out with all its defaults, it is the same again.
pub(crate) fn config() -> Read {
    let place = Place::with(&[]);
    Box::new(move |bytes| {
        place.write("config.toml", bytes);
        let document = Document::read(&place.file("config.toml")).map_err(|error| error.to_string())?;
        let _ = fedelity_report::config_values(&String::from_utf8_lossy(bytes));
        let settings = Settings::read(&document).map_err(|error| error.to_string())?;
        let resolved = settings.resolved("partition.json");
        let again = Document::parse("resolved".to_string(), PathBuf::new(), &resolved)
            .and_then(|document| Settings::read(&document))
            .unwrap_or_else(|error| panic!("{error}:\n{resolved}"));
        assert_eq!(again.resolved("partition.json"), resolved);
        Ok(())
    })
}

/// A sweep, without the configuration that it may name.
pub(crate) fn sweep() -> Read {
    let place = Place::with(&[("base.toml", b"rounds = 2\n")]);
    Box::new(move |bytes| {
        place.write("sweep.toml", bytes);
        let sweep = Sweep::read(&place.file("sweep.toml"), &place.file("out"), &[], |_| Ok(()));
        sweep.map(|_| ()).map_err(|error| error.to_string())
    })
}

/// A preset.
pub(crate) fn preset() -> Read {
    let place = Place::with(&[]);
    Box::new(move |bytes| {
        place.write("table.toml", bytes);
        let preset = Preset::read(&place.file("table.toml")).map_err(|error| error.to_string())?;
        let plan = preset.plan(&PresetChoice::default(), &place.file("out"), |_| Ok(()));
        plan.map(|_| ()).map_err(|error| error.to_string())
    })
}
