use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

fn shape(height: usize, width: usize) -> ImageShape {
    ImageShape { channels: 3, height, width }
}

/// Pixel `i` of an image `[row][column][channel]` is `(37 i + 11) % 251`; here as `[channel][row][column]`.
fn image(shape: ImageShape) -> Vec<u8> {
    let at = |channel, place| ((place * shape.channels + channel) * 37 + 11) % 251;
    let area = shape.height * shape.width;
    (0..shape.channels).flat_map(|channel| (0..area).map(move |place| at(channel, place) as u8)).collect()
}

/// `expected.bin` was made with Pillow and PyTorch:
///
///     for (h, w) in [(9, 7), (32, 32)]:
///         for deg in [7.3, -15.0, 14.999, 90.0, -0.25, 123.4]: PIL.Image.rotate(deg, NEAREST, fillcolor=(0, 0, 0))
///         for mode in ['constant', 'reflect']:
///             for (dy, dx) in [(0, 0), (4, -4), (-3, 2), (-4, -1)]:
///                 torch.nn.functional.pad(t, (4, 4, 4, 4), mode)[:, 4+dy:4+dy+h, 4+dx:4+dx+w], flipped where dx < 0
#[test]
fn views_match_pillow_and_pytorch() {
    let mut expected = &include_bytes!("expected.bin")[..];
    let mut augmenter = Augmenter::default();
    for shape in [shape(9, 7), shape(32, 32)] {
        let image = image(shape);
        let mut out = vec![0; image.len()];
        let mut check = |padding, view: View| {
            let (next, rest) = expected.split_at(image.len());
            expected = rest;
            augmenter.apply(shape, padding, &image, &view, &mut out);
            assert!(out == next, "{shape:?} {padding:?} {view:?}");
        };
        for degrees in [7.3, -15.0, 14.999, 90.0, -0.25, 123.4] {
            check(Padding::Zero, View { degrees, ..View::default() });
        }
        for padding in [Padding::Zero, Padding::Reflect] {
            for (down, right) in [(0, 0), (4, -4), (-3, 2), (-4, -1)] {
                check(padding, View { down, right, flip: right < 0, ..View::default() });
            }
        }
    }
    assert!(expected.is_empty());
}

#[test]
fn any_number_of_channels_and_any_angle() {
    let mut augmenter = Augmenter::default();
    for channels in 1..=6 {
        for (height, width) in [(1, 1), (1, 9), (5, 2), (28, 28)] {
            let shape = ImageShape { channels, height, width };
            let image = image(shape);
            let (mut out, mut one) = (vec![0; image.len()], vec![0; height * width]);
            for degrees in (-180..=180).step_by(9) {
                let view = View { degrees: f64::from(degrees) + 0.1, down: 1, ..View::default() };
                augmenter.apply(shape, Padding::Zero, &image, &view, &mut out);
                // Each channel on its own gives the same result.
                for (channel, plane) in image.chunks(height * width).enumerate() {
                    augmenter.apply(ImageShape { channels: 1, ..shape }, Padding::Zero, plane, &view, &mut one);
                    assert_eq!(one, out[channel * height * width..][..height * width]);
                }
            }
        }
    }
}

#[test]
fn views_stay_in_range_and_reach_all_of_it() {
    let all = Augmentation { crop: 4, padding: Padding::Zero, flip: true, rotation: 15.0, cutout: 16 };
    let shape = shape(32, 32);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let views: Vec<View> = (0..20_000).map(|_| all.view(shape, &mut rng)).collect();
    for shift in -4..=4 {
        let count = views.iter().filter(|view| view.down == shift).count() as f64;
        assert!((count / 20_000.0 - 1.0 / 9.0).abs() < 0.01, "{shift}: {count}");
        assert!(views.iter().any(|view| view.right == shift));
    }
    let flips = views.iter().filter(|view| view.flip).count();
    assert!((9_500..10_500).contains(&flips), "{flips}");
    let mean: f64 = views.iter().map(|view| view.degrees).sum::<f64>() / 20_000.0;
    assert!(mean.abs() < 0.3 && views.iter().all(|view| view.degrees.abs() <= 15.0));
    assert!(views.iter().any(|view| view.degrees > 14.9) && views.iter().any(|view| view.degrees < -14.9));
    let sides = |view: &View| view.hole.clone().map(|(rows, columns)| (rows.len(), columns.len())).unwrap();
    assert!(views.iter().all(|view| sides(view).0 >= 8 && sides(view).0 <= 16));
    // A hole is complete if its centre is 8 or more from both edges: 17 of 32 positions.
    let whole = views.iter().filter(|view| sides(view).1 == 16).count() as f64 / 20_000.0;
    assert!((whole - 17.0 / 32.0).abs() < 0.02, "{whole}");
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let shape = shape(8, 8);
    let bad = |augmentation: Augmentation| augmentation.check(shape).unwrap_err();
    assert!(bad(Augmentation { crop: 8, ..Augmentation::default() }).starts_with("crop = 8: expected less than 8"));
    assert!(bad(Augmentation { rotation: f32::NAN, ..Augmentation::default() }).starts_with("rotation = NaN"));
    assert!(bad(Augmentation { cutout: 17, ..Augmentation::default() }).starts_with("cutout = 17"));
    assert!(Augmentation::default().is_none() && Augmentation::default().check(shape).is_ok());
}
