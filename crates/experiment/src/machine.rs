//! A description of the computer.

/// The processor, if the system reports it, and the operating system.
pub(crate) fn describe() -> String {
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    match model {
        Some(model) => format!("{model}, {cores} cores, {system}"),
        None => format!("{cores} cores, {system}"),
    }
}
