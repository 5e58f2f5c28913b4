//! The presets that are part of the program, from the folder `presets`.

/// Names and texts, in the order of the list.
pub const PRESETS: &[(&str, &str)] = &[
    ("feddistill/table2", include_str!("../../presets/feddistill/table2.toml")),
    ("feddistill/table3", include_str!("../../presets/feddistill/table3.toml")),
    ("feddistill/table4", include_str!("../../presets/feddistill/table4.toml")),
    ("feddistill/table5", include_str!("../../presets/feddistill/table5.toml")),
    ("fedntd/table1-lda", include_str!("../../presets/fedntd/table1-lda.toml")),
    ("fedntd/table1-sharding", include_str!("../../presets/fedntd/table1-sharding.toml")),
    ("fedntd/table2", include_str!("../../presets/fedntd/table2.toml")),
    ("fedssd/table1", include_str!("../../presets/fedssd/table1.toml")),
    ("fedssd/table2", include_str!("../../presets/fedssd/table2.toml")),
    ("fedssd/table3", include_str!("../../presets/fedssd/table3.toml")),
    ("fedgkd/table3", include_str!("../../presets/fedgkd/table3.toml")),
    ("fedgkd/table4", include_str!("../../presets/fedgkd/table4.toml")),
    ("fedgkd/table5", include_str!("../../presets/fedgkd/table5.toml")),
    ("fedgkd/table6", include_str!("../../presets/fedgkd/table6.toml")),
    ("fedgkd/table7", include_str!("../../presets/fedgkd/table7.toml")),
    ("fedgkd/table8", include_str!("../../presets/fedgkd/table8.toml")),
    ("fedgkd/table9", include_str!("../../presets/fedgkd/table9.toml")),
    ("fedcad/table1", include_str!("../../presets/fedcad/table1.toml")),
    ("fedcad/table2", include_str!("../../presets/fedcad/table2.toml")),
    ("fedcad/table3", include_str!("../../presets/fedcad/table3.toml")),
    ("fedcad/table4", include_str!("../../presets/fedcad/table4.toml")),
];
