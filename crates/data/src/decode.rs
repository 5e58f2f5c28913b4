//! Decodes PNG and JPEG files into bytes of one shape, on all cores.

use std::io::Cursor;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use image::{DynamicImage, ImageError, ImageFormat, ImageReader, Limits, imageops::FilterType};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::dataset::ImageShape;
use crate::error::DataError;
use crate::files;
use crate::skipped::Skipped;

const LARGEST_SIDE: u32 = 16_384;
/// The maximum number of pixels in an image.
const LARGEST_AREA: u64 = 1 << 26;
const LARGEST_FILE: u64 = 1 << 28;
/// Rows that are converted at a time, so that a large image needs no memory for a second copy.
const STRIPE: u32 = 64;

/// How images become bytes of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageForm {
    /// Height and width to scale to. Without it, all images must have the size of the first.
    pub(crate) size: Option<(usize, usize)>,
    /// One channel instead of three.
    pub(crate) grey: bool,
}

/// The bytes of all usable images.
pub(crate) struct Decoded {
    pub(crate) shape: ImageShape,
    /// `[image][channel][row][column]`.
    pub(crate) pixels: Vec<u8>,
    /// The indices of their paths, in order.
    pub(crate) kept: Vec<usize>,
}

/// Reads images as bytes of one shape, scaled if they have another size. Unusable images are rejected or skipped,
/// depending on `skipped`. Returns the bytes, `[image][channel][row][column]`, and the indices of their paths.
pub fn images(paths: &[PathBuf], shape: ImageShape, skipped: &mut Skipped) -> Result<(Vec<u8>, Vec<usize>), DataError> {
    let form = ImageForm { size: Some((shape.height, shape.width)), grey: shape.channels == 1 };
    decode(paths, form, skipped).map(|made| (made.pixels, made.kept))
}

/// Decodes all files. Memory is limited to the result and one image per thread.
pub(crate) fn decode(paths: &[PathBuf], form: ImageForm, skipped: &mut Skipped) -> Result<Decoded, DataError> {
    let channels = if form.grey { 1 } else { 3 };
    let mut first = 0;
    let (height, width) = loop {
        let Some(path) = paths.get(first) else { break (1, 1) };
        if let Some(size) = form.size {
            break size;
        }
        match open(path) {
            Ok(image) => break (image.height() as usize, image.width() as usize),
            // It is counted when it is read again with the others.
            Err(reason) if !skipped.allowed => skipped.bad(path, None, reason)?,
            Err(_) => first += 1,
        }
    };
    let shape = ImageShape { channels, height, width };
    let mut pixels = vec![0; paths.len() * shape.pixels()];
    let reasons = fill(paths, &mut pixels, shape, form, skipped.allowed);
    let mut kept = Vec::with_capacity(paths.len());
    for (i, reason) in reasons.into_iter().enumerate() {
        match reason {
            None => kept.push(i),
            Some(reason) => skipped.bad(&paths[i], None, reason)?,
        }
    }
    if kept.len() < paths.len() {
        for (to, &from) in kept.iter().enumerate() {
            pixels.copy_within(from * shape.pixels()..(from + 1) * shape.pixels(), to * shape.pixels());
        }
        pixels.truncate(kept.len() * shape.pixels());
    }
    Ok(Decoded { shape, pixels, kept })
}

/// Fills in every image; returns the reasons for unusable ones. Without `all`, nothing is started after the first of
/// these.
fn fill(paths: &[PathBuf], pixels: &mut [u8], shape: ImageShape, form: ImageForm, all: bool) -> Vec<Option<String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(paths.len()).max(1);
    let work = Mutex::new(pixels.chunks_exact_mut(shape.pixels().max(1)).zip(paths).enumerate());
    let reasons = Mutex::new(vec![None; paths.len()]);
    let decode = || {
        loop {
            let next = work.lock().ok().and_then(|mut work| work.next());
            let Some((i, (bytes, path))) = next else { return };
            let Err(reason) = read(path, bytes, shape, form) else { continue };
            if let Ok(mut reasons) = reasons.lock() {
                reasons[i] = Some(reason);
            }
            if !all && let Ok(mut work) = work.lock() {
                // Drains the remaining work.
                work.by_ref().for_each(drop);
            }
        }
    };
    thread::scope(|scope| {
        // If no more threads can be started, the others do the work.
        let started = (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, decode).ok());
        let started: Vec<_> = started.collect();
        decode();
        // The scope alone does not wait until they have freed what is theirs.
        for thread in started {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    reasons.into_inner().unwrap_or_default()
}

fn read(path: &Path, bytes: &mut [u8], shape: ImageShape, form: ImageForm) -> Result<(), String> {
    let mut image = open(path)?;
    let (height, width) = (shape.height as u32, shape.width as u32);
    if (image.height(), image.width()) != (height, width) {
        if form.size.is_none() {
            let (h, w) = (image.height(), image.width());
            return Err(format!(
                "the image is {h}x{w} (height x width), but others are {height}x{width}: scale all to one size with \
                 data.size, such as size = [{height}, {width}]"
            ));
        }
        image = image.resize_exact(width, height, FilterType::Triangle);
    }
    if image.height() <= STRIPE {
        convert(image, bytes, shape, 0);
        return Ok(());
    }
    for start in (0..height).step_by(STRIPE as usize) {
        convert(image.crop_imm(0, start, width, STRIPE.min(height - start)), bytes, shape, start);
    }
    Ok(())
}

/// Writes the rows of a stripe from `start` on into an image, `[channel][row][column]`.
fn convert(stripe: DynamicImage, bytes: &mut [u8], shape: ImageShape, start: u32) {
    let (area, from) = (shape.height * shape.width, start as usize * shape.width);
    let rows = from..from + stripe.height() as usize * shape.width;
    if shape.channels == 1 {
        bytes[rows].copy_from_slice(stripe.into_luma8().as_raw());
        return;
    }
    let (red, rest) = bytes.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    let (red, green, blue) = (&mut red[rows.clone()], &mut green[rows.clone()], &mut blue[rows]);
    let rgb = stripe.into_rgb8();
    for (((pixel, red), green), blue) in rgb.as_raw().chunks_exact(3).zip(red).zip(green).zip(blue) {
        (*red, *green, *blue) = (pixel[0], pixel[1], pixel[2]);
    }
}

/// Decodes one file; its first bytes show whether it is PNG or JPEG.
fn open(path: &Path) -> Result<DynamicImage, String> {
    let (_, length) = files::open(path).map_err(|error| match error {
        DataError::Io { source, .. } => source.to_string(),
        DataError::NotAFile { .. } => "expected a regular file".to_string(),
        other => other.to_string(),
    })?;
    if length > LARGEST_FILE {
        return Err(format!("the file has {length} bytes; at most {LARGEST_FILE} are allowed"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Err("the file is empty".to_string());
    }
    match image::guess_format(&bytes) {
        Ok(ImageFormat::Png) => png(&bytes),
        Ok(ImageFormat::Jpeg) => jpeg(&bytes),
        _ => Err("neither PNG nor JPEG".to_string()),
    }
}

fn png(bytes: &[u8]) -> Result<DynamicImage, String> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), ImageFormat::Png);
    let mut limits = Limits::default();
    limits.max_image_width = Some(LARGEST_SIDE);
    limits.max_image_height = Some(LARGEST_SIDE);
    limits.max_alloc = Some(4 * LARGEST_AREA);
    reader.limits(limits);
    reader.decode().map_err(|error| match error {
        ImageError::Limits(_) => format!(
            "the image is too large: at most {LARGEST_SIDE} pixels a side and about {LARGEST_AREA} pixels are allowed"
        ),
        error => format!("damaged PNG: {error}"),
    })
}

/// Decodes a JPEG. A file that ends early is rejected; other readers fill the rest with grey.
fn jpeg(bytes: &[u8]) -> Result<DynamicImage, String> {
    let damaged = |reason: String| format!("damaged JPEG: {reason}");
    // Some writers add bytes after the end marker.
    if !bytes.windows(2).any(|pair| pair == [0xff, 0xd9]) {
        return Err(damaged("the end marker is missing".to_string()));
    }
    let side = LARGEST_SIDE as usize;
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(side)
        .set_max_height(side)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| damaged(error.to_string()))?;
    let (width, height) = decoder.dimensions().ok_or_else(|| damaged("the size is missing".to_string()))?;
    let most = if is_sequential(bytes) { LARGEST_AREA } else { LARGEST_AREA / 2 };
    if (width * height) as u64 > most {
        return Err(format!("the image is {height}x{width}; at most {most} pixels are allowed"));
    }
    let pixels = decoder.decode().map_err(|error| damaged(error.to_string()))?;
    let image = image::RgbImage::from_raw(width as u32, height as u32, pixels);
    image.map(DynamicImage::ImageRgb8).ok_or_else(|| damaged("the file ends early".to_string()))
}

/// Whether a JPEG is decoded block by block. Otherwise, as if it is progressive, all its coefficients are held in memory.
fn is_sequential(bytes: &[u8]) -> bool {
    let mut channels = None;
    // After the start marker come segments: a marker, a length of two bytes that counts itself, and the content.
    let mut left = bytes.get(2..).unwrap_or_default();
    while let [0xff, marker, high, low, rest @ ..] = left {
        let length = usize::from(u16::from_be_bytes([*high, *low])).saturating_sub(2);
        match (marker, channels) {
            (0xc0 | 0xc1, None) => channels = rest.get(5).copied(),
            // The start of a scan says how many channels it has.
            (0xda, Some(channels)) => return channels <= 3 && rest.first() == Some(&channels),
            (0xc2..=0xcf, _) if ![0xc4, 0xc8, 0xcc].contains(marker) => return false,
            _ => {}
        }
        left = rest.get(length..).unwrap_or_default();
    }
    false
}
