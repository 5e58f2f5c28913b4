//! The instruction set that everything runs on.

use anyhow::{Result, bail};
use fedelity_nn::Isa;

/// The variable that chooses it.
const VARIABLE: &str = "FEDELITY_ISA";

/// The instruction set that the environment names, or the best one of this machine.
pub(crate) fn chosen() -> Result<Isa> {
    match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        None => Ok(Isa::detect()),
        Some(name) => named(&name.to_string_lossy()),
    }
}

fn named(name: &str) -> Result<Isa> {
    if let Some(isa) = Isa::from_name(name) {
        return Ok(isa);
    }
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    bail!("{VARIABLE} = \"{name}\": this machine has {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_found_and_named() {
        for isa in Isa::available() {
            assert_eq!(named(isa.name()).unwrap(), isa);
        }
        let text = named("avx1024").unwrap_err().to_string();
        assert!(text.starts_with("FEDELITY_ISA = \"avx1024\": this machine has portable-wide, portable"), "{text}");
    }
}
