//! What normalisations read and write. Images are `[group][channel][row][column][lane]`, each with its plane.

use crate::plane::Plane;

/// y = relu?(gamma * the normalised x + beta).
#[derive(Debug)]
pub struct Normalise<'a> {
    /// The output.
    pub y: (&'a mut [f32], Plane),
    /// The input.
    pub x: (&'a [f32], Plane),
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
    /// The gradient of the input.
    pub d_x: (&'a mut [f32], Plane),
    /// `[channel]`.
    pub d_gamma: &'a mut [f32],
    /// `[channel]`.
    pub d_beta: &'a mut [f32],
    /// The gradient of the output: zero in lanes without a sample.
    pub d_y: (&'a [f32], Plane),
    /// The output, if a ReLU followed: the gradient counts only where it is positive.
    pub relu_output: Option<(&'a [f32], Plane)>,
    /// The input.
    pub x: (&'a [f32], Plane),
    /// `[channel]`.
    pub gamma: &'a [f32],
}
