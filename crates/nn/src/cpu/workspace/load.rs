//! Loading of batches into the buffers, and sizing of the buffers.

use fedelity_kernels::lanes::{self, ByteImages};
use fedelity_kernels::{Buffer, LANES, PlanesMut};

use super::{Mode, Workspace};
use crate::batch::Batch;
use crate::cpu::plan::ValuePlace;
use crate::cpu::sequence::{SequencePlan, Texts};

/// A batch of the wrong kind is a programming error, not a user error.
const UNFIT: &str = "the batch is not what this model takes";

impl Workspace {
    /// Runs the token part of the model, which gives one row per sample.
    pub(super) fn read_tokens(&mut self, plan: &SequencePlan, mode: &Mode<'_>, batch: &Batch<'_>) {
        let Batch::Tokens { ids, starts, indices } = *batch else { panic!("{UNFIT}") };
        let (texts, rows) = (Texts { ids, starts, indices }, &mut self.rows[0][..indices.len() * plan.width]);
        match mode {
            Mode::Training { params, key } => self.sequence.train(plan, params, texts, *key, rows),
            Mode::Evaluation { params } => self.sequence.evaluate(plan, params, texts, rows),
        }
    }

    pub(super) fn load_image(&mut self, batch: &Batch<'_>, n: usize) {
        let image = &self.plan.values[0];
        let x = PlanesMut { data: &mut self.saved[0], plane: image.plane };
        match *batch {
            Batch::Bytes { pixels, indices, scale, shift } => {
                let (scale, shift) = (&scale[..image.channels], &shift[..image.channels]);
                lanes::gather_u8(self.isa, x, ByteImages { pixels, indices, scale, shift });
            }
            Batch::Floats { rows } => lanes::from_rows(self.isa, x, image.channels, rows, n),
            Batch::Rows { values, indices } => {
                let row = |&i: &u32| &values[i as usize * self.input.len()..(i as usize + 1) * self.input.len()];
                self.picked.clear();
                indices.iter().for_each(|i| self.picked.extend_from_slice(row(i)));
                lanes::from_rows(self.isa, x, image.channels, &self.picked, n);
            }
            Batch::Tokens { .. } => panic!("{UNFIT}"),
        }
    }

    pub(super) fn load_rows(&mut self, batch: &Batch<'_>) {
        let (width, len) = (self.input.len(), self.samples * self.input.len());
        let rows = &mut self.rows[0][..len];
        match *batch {
            Batch::Bytes { pixels, indices, scale, shift } => {
                let (channels, height, columns) = self.input.sides();
                let (scale, shift) = (&scale[..channels], &shift[..channels]);
                lanes::gather_u8_rows(rows, ByteImages { pixels, indices, scale, shift }, height * columns);
            }
            Batch::Floats { rows: values } => rows.copy_from_slice(&values[..len]),
            Batch::Rows { values, indices } => {
                for (row, &i) in rows.chunks_exact_mut(width).zip(indices) {
                    row.copy_from_slice(&values[i as usize * width..(i as usize + 1) * width]);
                }
            }
            Batch::Tokens { .. } => panic!("{UNFIT}"),
        }
    }

    /// Grows the row buffers to the size of a batch.
    pub(super) fn reserve_rows(&mut self, samples: usize) {
        if samples <= self.row_samples {
            return;
        }
        self.row_samples = samples;
        for (i, rows) in self.rows.iter_mut().zip(&mut self.d_rows).enumerate() {
            let width = if i == 0 { self.plan.row_width } else { self.plan.rows[i - 1].width() };
            *rows.0 = Buffer::zeros(samples * width);
            *rows.1 = Buffer::zeros(samples * width);
        }
    }

    /// Grows the image buffers to the size of a batch. New buffers are zero, and their halos stay zero.
    pub(super) fn reserve(&mut self, groups: usize) {
        if groups <= self.groups {
            return;
        }
        self.groups = groups;
        let lanes = LANES;
        for value in &self.plan.values {
            if let ValuePlace::Saved(i) = value.place {
                self.saved[i] = Buffer::zeros(groups * value.channels * value.plane.area() * lanes);
            }
        }
        let chunk = groups.min(self.plan.chunk);
        for (slot, &size) in self.slots.iter_mut().zip(&self.plan.slots) {
            *slot = Buffer::zeros(chunk * size);
        }
        for (aux, &size) in self.aux.iter_mut().zip(&self.plan.aux) {
            *aux = Buffer::zeros(groups * size);
        }
    }
}
