//! What a server tells a site before the first round.

use fedelity_experiment::{Agreement, Client, Document, Resources};

use crate::Read;
use crate::place::Place;

/// An agreement, at a site with a small table.
pub(crate) fn agreement() -> Read {
    let place = Place::with(&[("own.csv", b"label,a,b\nx,1,2\ny,3,4\nx,0,1\n")]);
    let site = "[data]\nname = \"csv\"\ntrain = \"own.csv\"\n";
    let site = Document::parse("site.toml".to_string(), place.folder().to_path_buf(), site).expect("a site");
    let resources = Resources::default();
    Box::new(move |bytes| {
        // The table is in the folder as long as the reader.
        let _ = &place;
        let text = String::from_utf8_lossy(bytes);
        let read = Agreement::from_json(&text).map_err(|error| error.to_string())?;
        let again = Agreement::from_json(&read.to_json()).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(again.digest(), read.digest());
        Client::of_site(&read, 0, &site, &resources).map(|_| ()).map_err(|error| error.to_string())
    })
}
