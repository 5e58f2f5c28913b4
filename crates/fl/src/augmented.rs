//! Batches of augmented images.

use fedelity_data::augment::View;
use fedelity_data::{Augmentation, Augmenter, ImageShape};
use fedelity_nn::{Batch, Model};
use rand_chacha::ChaCha8Rng;

use crate::Samples;

/// Words of the random stream reserved for one sample.
const WORDS: u128 = 16;

/// Memory for batches of augmented images.
#[derive(Debug, Default)]
pub(crate) struct Augmented {
    augmenter: Augmenter,
    views: Vec<View>,
    bytes: Vec<u8>,
    floats: Vec<f32>,
    places: Vec<u32>,
}

impl Augmented {
    /// The samples, each in one random view. `stream` is the stream of this client, round and epoch; a sample's own
    /// part of it is found by its position in the client's data. So the view does not depend on the batch, and a site
    /// that holds only its own images sees the same ones.
    pub(crate) fn batch<'a>(
        &'a mut self,
        augmentation: &Augmentation,
        model: &Model,
        samples: Samples<'a>,
        positions: &[u32],
        stream: &mut ChaCha8Rng,
    ) -> Batch<'a> {
        let (channels, height, width) = model.input().sides();
        let shape = ImageShape { channels, height, width };
        self.bytes.resize(samples.len() * shape.pixels(), 0);
        self.views.clear();
        let targets = self.bytes.chunks_exact_mut(shape.pixels());
        for ((&index, &position), out) in samples.indices.iter().zip(positions).zip(targets) {
            stream.set_word_pos(WORDS * u128::from(position));
            let view = augmentation.view(shape, stream);
            let image = &samples.split.pixels()[index as usize * shape.pixels()..][..shape.pixels()];
            self.augmenter.apply(shape, augmentation.padding, image, &view, out);
            self.views.push(view);
        }
        let (scale, shift) = (&samples.scaling.scale, &samples.scaling.shift);
        if augmentation.cutout == 0 {
            self.places.clear();
            self.places.extend(0..samples.len() as u32);
            return Batch::Bytes { pixels: &self.bytes, indices: &self.places, scale, shift };
        }
        // A hole is 0 after normalisation, and no byte maps to 0.
        self.floats.resize(self.bytes.len(), 0.0);
        let area = height * width;
        for (plane, (bytes, floats)) in
            self.bytes.chunks_exact(area).zip(self.floats.chunks_exact_mut(area)).enumerate()
        {
            let (scale, shift) = (scale[plane % channels], shift[plane % channels]);
            floats.iter_mut().zip(bytes).for_each(|(float, &byte)| *float = f32::from(byte) * scale + shift);
            if let Some((rows, columns)) = &self.views[plane / channels].hole {
                rows.clone().for_each(|row| floats[row * width..][columns.clone()].fill(0.0));
            }
        }
        Batch::Floats { rows: &self.floats }
    }
}
