//! What normalisations read and write.

use crate::plane::{Planes, PlanesMut};

/// y = relu?(gamma * the normalised x + beta).
#[derive(Debug)]
pub struct Normalise<'a> {
    pub y: PlanesMut<'a>,
    pub x: Planes<'a>,
    /// `[channel]`.
    pub gamma: &'a [f32],
    /// `[channel]`.
    pub beta: &'a [f32],
    /// Whether a ReLU follows.
    pub relu: bool,
}

/// Its gradients. The border of d_x is cleared; d_gamma and d_beta accumulate.
#[derive(Debug)]
pub struct NormGradient<'a> {
    pub d_x: PlanesMut<'a>,
    /// `[channel]`.
    pub d_gamma: &'a mut [f32],
    /// `[channel]`.
    pub d_beta: &'a mut [f32],
    /// The gradient of the output: zero in lanes without a sample.
    pub d_y: Planes<'a>,
    /// The output, if a ReLU followed: the gradient counts only where it is positive.
    pub relu_output: Option<Planes<'a>>,
    pub x: Planes<'a>,
    /// `[channel]`.
    pub gamma: &'a [f32],
}
