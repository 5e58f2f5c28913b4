//! Random images, for measurements that need data of a certain shape only.

use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Shape, Split};
use fedelity_fl::{Held, Purpose, Scaling, ServerData, stream};
use fedelity_nn::InputShape;
use rand_chacha::rand_core::Rng;

/// Random images: first a client's, then a few for each of the server's sets.
pub struct Synthetic {
    pub dataset: Arc<Dataset>,
    samples: u32,
}

/// Samples in each of the server's sets.
const SERVER: u32 = 10;

impl Synthetic {
    /// The client's samples, and the server's. Labels cycle through the classes.
    pub fn new(shape: InputShape, classes: usize, samples: usize) -> Self {
        let all = samples + 3 * SERVER as usize;
        let (channels, height, width) = shape.sides();
        let mut pixels = vec![0; all * shape.len()];
        stream(1, Purpose::ServerData, 0, 0, 0).fill_bytes(&mut pixels);
        let labels = (0..all).map(|i| (i % classes) as u16).collect();
        // Bytes become numbers with mean 0 and standard deviation about 1.
        let normalisation = Normalisation { mean: vec![0.5; channels], std: vec![0.29; channels] };
        let dataset = Dataset {
            name: "synthetic".to_string(),
            classes: (0..classes).map(|class| class.to_string()).collect(),
            shape: Shape::Image(ImageShape { channels, height, width }),
            train: Split::images(pixels, labels),
            test: Split::default(),
            normalisation,
            table: None,
        };
        Self { dataset: Arc::new(dataset), samples: samples as u32 }
    }

    /// The client's samples.
    pub fn client(&self) -> Vec<u32> {
        (0..self.samples).collect()
    }

    pub fn scaling(&self) -> Scaling {
        Scaling::from(&self.dataset.normalisation)
    }

    /// The server's samples: everything any method may need.
    pub fn server_data(&self) -> ServerData {
        let held = |k: u32| {
            let first = self.samples + k * SERVER;
            Some(Held::new(Arc::clone(&self.dataset), (first..first + SERVER).collect()))
        };
        ServerData { auxiliary: held(0), validation: held(1), unlabelled: held(2) }
    }
}
