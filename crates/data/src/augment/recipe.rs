//! Augmentation in published code bases, per data set.

use fedelity_keys::Choice;

use super::{Augmentation, Padding};
use crate::catalogue::SetName;
use crate::dataset::Normalisation;

/// The published code base whose augmentation is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum Recipe {
    /// No changes, and the data set's own normalisation.
    None,
    /// Li et al. 2021.
    Moon,
    /// Li et al. 2022.
    NiidBench,
    /// Lee et al. 2022.
    Fedntd,
    /// Yao et al. 2024.
    Fedgkd,
}

/// How a code base treats a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Treatment {
    pub augmentation: Augmentation,
    /// How inputs are normalised, if not with the data set's own numbers.
    pub normalisation: Option<Normalisation>,
    /// Height and width that images are scaled to, if any.
    pub size: Option<(usize, usize)>,
}

const NONE: Augmentation = Augmentation { crop: 0, padding: Padding::Zero, flip: false, rotation: 0.0, cutout: 0 };
const CROP_FLIP: Augmentation = Augmentation { crop: 4, flip: true, ..NONE };
const REFLECT_FLIP: Augmentation = Augmentation { padding: Padding::Reflect, ..CROP_FLIP };
const CROP_FLIP_ROTATE: Augmentation = Augmentation { rotation: 15.0, ..CROP_FLIP };
const CROP_FLIP_CUTOUT: Augmentation = Augmentation { cutout: 16, ..CROP_FLIP };

/// Mean and standard deviation of red, green and blue; the first is used for grey.
type Numbers = ([f64; 3], [f64; 3]);
const CIFAR10: Numbers = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]);
const CIFAR100: Numbers = ([0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]);
const HALF: Numbers = ([0.5; 3], [0.5; 3]);
const UNIT: Numbers = ([0.0; 3], [1.0; 3]);

const MOON_CIFAR10: Numbers =
    ([125.3 / 255.0, 123.0 / 255.0, 113.9 / 255.0], [63.0 / 255.0, 62.1 / 255.0, 66.7 / 255.0]);

/// All published treatments.
const TREATMENTS: [(Recipe, SetName, Augmentation, Numbers); 17] = [
    (Recipe::Moon, SetName::Cifar10, REFLECT_FLIP, MOON_CIFAR10),
    (Recipe::Moon, SetName::Cifar100, CROP_FLIP_ROTATE, CIFAR100),
    (Recipe::Moon, SetName::TinyImagenet, NONE, HALF),
    (Recipe::NiidBench, SetName::Cifar10, REFLECT_FLIP, UNIT),
    (Recipe::NiidBench, SetName::Cifar100, CROP_FLIP_ROTATE, CIFAR100),
    (Recipe::NiidBench, SetName::TinyImagenet, CROP_FLIP_ROTATE, HALF),
    (Recipe::NiidBench, SetName::Mnist, NONE, UNIT),
    (Recipe::NiidBench, SetName::Femnist, NONE, UNIT),
    (Recipe::NiidBench, SetName::FashionMnist, NONE, UNIT),
    (Recipe::NiidBench, SetName::FashionMnistMini, NONE, UNIT),
    (Recipe::Fedntd, SetName::Cifar10, CROP_FLIP_CUTOUT, CIFAR10),
    (Recipe::Fedntd, SetName::Cifar100, CROP_FLIP_CUTOUT, CIFAR100),
    (Recipe::Fedntd, SetName::Mnist, CROP_FLIP_CUTOUT, ([0.1307; 3], [0.3081; 3])),
    (Recipe::Fedntd, SetName::Cinic10, REFLECT_FLIP, ([0.4789, 0.4723, 0.4305], [0.2421, 0.2383, 0.2587])),
    (Recipe::Fedgkd, SetName::Cifar10, CROP_FLIP, (CIFAR10.0, [0.2023, 0.1994, 0.2010])),
    (Recipe::Fedgkd, SetName::Cifar100, CROP_FLIP, ([0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761])),
    (Recipe::Fedgkd, SetName::TinyImagenet, CROP_FLIP, HALF),
];

impl Recipe {
    /// The code base's treatment of a data set; `None` if it does not use the set. Only [`Recipe::None`] applies to
    /// data outside the catalogue.
    pub fn of(self, set: Option<SetName>) -> Option<Treatment> {
        // FedGKD reads texts unchanged.
        let texts = self == Self::Fedgkd && set.is_some_and(|set| set.entry().shape.image().is_none());
        if self == Self::None || texts {
            return Some(Treatment::default());
        }
        let (.., name, augmentation, (mean, std)) =
            TREATMENTS.into_iter().find(|(recipe, name, ..)| *recipe == self && Some(*name) == set)?;
        let channels = name.entry().shape.image()?.channels;
        let numbers = |values: [f64; 3]| values[..channels].iter().map(|&value| value as f32).collect();
        let normalisation = Some(Normalisation { mean: numbers(mean), std: numbers(std) });
        let size = (self == Self::NiidBench && name == SetName::TinyImagenet).then_some((32, 32));
        Some(Treatment { augmentation, normalisation, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers() {
        let moon = Recipe::Moon.of(Some(SetName::Cifar10)).unwrap();
        assert_eq!(moon.augmentation.padding, Padding::Reflect);
        assert!((moon.normalisation.unwrap().mean[0] - 0.491_373).abs() < 1e-6);
        let rotated = Recipe::NiidBench.of(Some(SetName::Cifar100)).unwrap();
        assert_eq!((rotated.augmentation.rotation, rotated.augmentation.padding), (15.0, Padding::Zero));
        assert_eq!(Recipe::Fedntd.of(Some(SetName::Mnist)).unwrap().normalisation.unwrap().mean, [0.1307]);
        assert_eq!(Recipe::Fedntd.of(Some(SetName::Cinic10)).unwrap().augmentation.cutout, 0);
        assert_eq!(Recipe::NiidBench.of(Some(SetName::TinyImagenet)).unwrap().size, Some((32, 32)));
        assert_eq!(Recipe::None.of(None).unwrap().augmentation, Augmentation::default());
        assert_eq!(Recipe::Moon.of(Some(SetName::Mnist)), None);
    }

    #[test]
    fn every_recipe_knows_a_set() {
        for recipe in Recipe::ALL {
            assert!(recipe.of(Some(SetName::Cifar10)).is_some(), "{recipe:?}");
        }
    }
}
