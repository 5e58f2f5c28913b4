//! What the published code bases do with each data set, by name.

use super::{Augmentation, Padding};
use crate::dataset::Normalisation;

/// The names of all recipes. `none` changes nothing and keeps the normalisation of the data set.
pub const RECIPES: [&str; 5] = ["none", "moon", "niid-bench", "fedntd", "fedgkd"];

/// What a code base does with a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Random changes of training images.
    pub augmentation: Augmentation,
    /// How inputs are normalised, if otherwise than by the data set's own numbers.
    pub normalisation: Option<Normalisation>,
    /// Height and width that images are scaled to, if they are.
    pub size: Option<(usize, usize)>,
}

const NONE: Augmentation = Augmentation { crop: 0, padding: Padding::Zero, flip: false, rotation: 0.0, cutout: 0 };
const CROP_FLIP: Augmentation = Augmentation { crop: 4, flip: true, ..NONE };
const REFLECT_FLIP: Augmentation = Augmentation { padding: Padding::Reflect, ..CROP_FLIP };
const CROP_FLIP_ROTATE: Augmentation = Augmentation { rotation: 15.0, ..CROP_FLIP };
const CROP_FLIP_CUTOUT: Augmentation = Augmentation { cutout: 16, ..CROP_FLIP };

type Numbers = ([f64; 3], [f64; 3]);
const CIFAR10: Numbers = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]);
const CIFAR100: Numbers = ([0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]);
const HALF: Numbers = ([0.5; 3], [0.5; 3]);
const UNIT: Numbers = ([0.0; 3], [1.0; 3]);

/// What the code base `name` does with the data set `dataset`; none if it does not know the set.
///
/// MOON (Li et al. 2021), NIID-Bench (Li et al. 2022), FedNTD (Lee et al. 2022) and FedGKD (Yao et al. 2024), each as in
/// its published code.
pub fn recipe(name: &str, dataset: &str) -> Option<Recipe> {
    let made = |augmentation, (mean, std): Numbers| {
        let grey = dataset.contains("mnist");
        let channels =
            |values: [f64; 3]| values[..if grey { 1 } else { 3 }].iter().map(|&value| value as f32).collect();
        let normalisation = Some(Normalisation { mean: channels(mean), std: channels(std) });
        Recipe { augmentation, normalisation, size: None }
    };
    let recipe = match (name, dataset) {
        ("none", _) | ("fedgkd", "agnews" | "sst5") => Recipe { augmentation: NONE, normalisation: None, size: None },
        ("moon", "cifar10") => {
            let of_255 = |values: [f64; 3]| values.map(|value| value / 255.0);
            made(REFLECT_FLIP, (of_255([125.3, 123.0, 113.9]), of_255([63.0, 62.1, 66.7])))
        }
        ("moon" | "niid-bench", "cifar100") => made(CROP_FLIP_ROTATE, CIFAR100),
        ("moon", "tiny-imagenet") => made(NONE, HALF),
        ("niid-bench", "cifar10") => made(REFLECT_FLIP, UNIT),
        ("niid-bench", "tiny-imagenet") => Recipe { size: Some((32, 32)), ..made(CROP_FLIP_ROTATE, HALF) },
        ("niid-bench", "mnist" | "femnist" | "fashion-mnist" | "fashion-mnist-mini") => made(NONE, UNIT),
        ("fedntd", "cifar10") => made(CROP_FLIP_CUTOUT, CIFAR10),
        ("fedntd", "cifar100") => made(CROP_FLIP_CUTOUT, CIFAR100),
        ("fedntd", "mnist") => made(CROP_FLIP_CUTOUT, ([0.1307; 3], [0.3081; 3])),
        ("fedntd", "cinic10") => made(REFLECT_FLIP, ([0.4789, 0.4723, 0.4305], [0.2421, 0.2383, 0.2587])),
        ("fedgkd", "cifar10") => made(CROP_FLIP, (CIFAR10.0, [0.2023, 0.1994, 0.2010])),
        ("fedgkd", "cifar100") => made(CROP_FLIP, ([0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761])),
        ("fedgkd", "tiny-imagenet") => made(CROP_FLIP, HALF),
        _ => return None,
    };
    Some(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers() {
        let moon = recipe("moon", "cifar10").unwrap();
        assert_eq!(moon.augmentation.padding, Padding::Reflect);
        assert!((moon.normalisation.unwrap().mean[0] - 0.491_373).abs() < 1e-6);
        let rotated = recipe("niid-bench", "cifar100").unwrap();
        assert_eq!((rotated.augmentation.rotation, rotated.augmentation.padding), (15.0, Padding::Zero));
        assert_eq!(recipe("fedntd", "mnist").unwrap().normalisation.unwrap().mean, [0.1307]);
        assert_eq!(recipe("fedntd", "cinic10").unwrap().augmentation.cutout, 0);
        assert_eq!(recipe("niid-bench", "tiny-imagenet").unwrap().size, Some((32, 32)));
        assert_eq!(recipe("none", "csv").unwrap().augmentation, Augmentation::default());
        assert_eq!(recipe("moon", "mnist"), None);
    }

    #[test]
    fn every_recipe_knows_a_set() {
        for name in RECIPES {
            assert!(recipe(name, "cifar10").is_some(), "{name}");
        }
    }
}
