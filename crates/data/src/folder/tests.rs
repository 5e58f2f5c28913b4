use super::*;
use crate::dataset::ImageShape;
use image::{GrayImage, Luma, Rgb, RgbImage};

/// An image whose pixels encode its number, row and column.
fn picture(number: u8, height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([number, y as u8, x as u8]))
}

fn put(dir: &Path, name: &str, number: u8) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    picture(number, 3, 4).save(path).unwrap();
}

fn folder(dir: &Path) -> Folder {
    Folder { path: dir.to_path_buf(), layout: FolderLayout::Class, size: None, colour: Colour::Rgb, test_fraction: 0.5 }
}

fn strict(folder: &Folder) -> Result<Dataset, DataError> {
    read(folder, true, &mut Skipped::default())
}

const CACHE: &str = ".fedelity-cache/folder.images";

#[test]
fn classes_splits_and_pixels() {
    let dir = tempfile::tempdir().unwrap();
    for (name, number) in [("train/b/2.png", 2), ("train/a/1.png", 1), ("train/b/3.PNG", 3), ("test/b/9.png", 9)] {
        put(dir.path(), name, number);
    }
    let set = strict(&folder(dir.path())).unwrap();
    assert_eq!(set.classes, ["a", "b"]);
    assert_eq!(set.shape, Shape::Image(ImageShape { channels: 3, height: 3, width: 4 }));
    assert_eq!((&set.train.labels[..], &set.test.labels[..]), (&[0, 1, 1][..], &[1][..]));
    assert_eq!(set.train.image(1)[..12], [2; 12]);
    assert_eq!(set.train.image(2)[12..24], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(set.test.image(0)[24..], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
    assert!((set.normalisation.mean[0] - 2.0 / 255.0).abs() < 1e-6);
    // The second time, the same images come from the cache.
    assert!(dir.path().join(CACHE).exists());
    assert_eq!(strict(&folder(dir.path())).unwrap(), set);
}

#[test]
fn keys_are_a_level_of_folders() {
    let dir = tempfile::tempdir().unwrap();
    for (name, number) in [("x/cat/1.png", 1), ("x/dog/2.png", 2), ("y/cat/3.png", 3), ("y/cat/4.png", 4)] {
        put(dir.path(), name, number);
    }
    let set = strict(&Folder { layout: FolderLayout::KeyClass, test_fraction: 0.3, ..folder(dir.path()) }).unwrap();
    let swapped = strict(&Folder { layout: FolderLayout::ClassKey, test_fraction: 0.3, ..folder(dir.path()) }).unwrap();
    assert_eq!(
        (&set.classes[..], &swapped.classes[..]),
        (&["cat".to_string(), "dog".to_string()][..], &["x".to_string(), "y".to_string()][..])
    );
    let keys = set.train.keys.as_ref().unwrap();
    assert_eq!(keys.names, ["x", "y"]);
    for i in 0..set.train.len() {
        assert_eq!(keys.of[i], u32::from(set.train.image(i)[0] > 2));
    }
    // From the cache, with the keys.
    let again = strict(&Folder { layout: FolderLayout::ClassKey, test_fraction: 0.3, ..folder(dir.path()) }).unwrap();
    assert_eq!(again, swapped);
}

#[test]
fn sizes_and_colours() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a/1.png", 1);
    fs::create_dir(dir.path().join("b")).unwrap();
    picture(2, 6, 8).save(dir.path().join("b/2.png")).unwrap();
    GrayImage::from_pixel(4, 3, Luma([77])).save(dir.path().join("b/3.png")).unwrap();
    let text = strict(&folder(dir.path())).unwrap_err().to_string();
    assert!(text.contains("b/2.png: the image is 6x8 (height x width), but others are 3x4"), "{text}");
    assert!(text.contains("size = [3, 4]"), "{text}");
    assert!(!dir.path().join(".fedelity-cache").exists());
    let scaled = strict(&Folder { size: Some((2, 2)), colour: Colour::Grey, ..folder(dir.path()) }).unwrap();
    assert_eq!(scaled.shape, Shape::Image(ImageShape { channels: 1, height: 2, width: 2 }));
    let all = [scaled.train.pixels(), scaled.test.pixels()].concat();
    assert!(all.chunks(4).any(|image| image == [77; 4]), "{all:?}");
}

#[test]
fn changes_to_the_images_or_the_cache_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "train/a/1.png", 1);
    put(dir.path(), "test/a/2.png", 2);
    let first = strict(&folder(dir.path())).unwrap();
    let cache = dir.path().join(CACHE);
    let whole = fs::read(&cache).unwrap();
    // Damaged at every byte after the key, or truncated at any length: the images are decoded again.
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x15;
        fs::write(&cache, damaged).unwrap();
        assert_eq!(strict(&folder(dir.path())).unwrap(), first, "{at}");
        fs::write(&cache, &whole[..at]).unwrap();
        assert_eq!(strict(&folder(dir.path())).unwrap(), first, "{at}");
    }
    fs::remove_file(dir.path().join("train/a/1.png")).unwrap();
    put(dir.path(), "train/a/1.png", 200);
    assert_eq!(strict(&folder(dir.path())).unwrap().train.image(0)[0], 200);
    let names: Vec<_> = fs::read_dir(dir.path().join(".fedelity-cache")).unwrap().collect();
    assert_eq!(names.len(), 1, "a part file was left behind");
}

#[test]
fn bad_files_are_named_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, number) in [("a/1.png", 1), ("a/2.png", 2), ("b/3.png", 3), ("b/4.png", 4)] {
        put(dir.path(), name, number);
    }
    let bad = |name: &str, content: &[u8], expected: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let text = strict(&folder(dir.path())).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{}: {expected}", path.display())), "{text}");
        let mut skipped = Skipped::new(true);
        let set = read(&folder(dir.path()), true, &mut skipped).unwrap();
        assert_eq!((skipped.count, set.train.len() + set.test.len()), (1, 4));
        assert!(skipped.first[0].contains(name));
        assert!(!dir.path().join(CACHE).exists(), "a partial cache was written");
        fs::remove_file(path).unwrap();
    };
    let jpeg = jpeg();
    let mut damaged = jpeg.clone();
    damaged[20..40].fill(0xff);
    bad("a/0.png", b"", "the file is empty");
    bad("a/0.jpg", b"GIF89a", "neither PNG nor JPEG");
    bad("b/5.jpg", &jpeg[..jpeg.len() / 2], "damaged JPEG: ");
    bad("b/5.jpeg", &damaged, "damaged JPEG: ");
    bad("b/notes.txt", b"x", "the name does not end in .png, .jpg or .jpeg");
    let png = fs::read(dir.path().join("a/1.png")).unwrap();
    bad("b/9.png", &png[..png.len() - 20], "damaged PNG: ");
    let mut wide = std::io::Cursor::new(Vec::new());
    image::GrayImage::new(20_000, 1).write_to(&mut wide, image::ImageFormat::Png).unwrap();
    bad("b/9.png", wide.get_ref(), "the image is too large: at most 16384 pixels a side");
    bad("stray.png", &png, "expected a folder of images, found a file");
    fs::create_dir(dir.path().join("c")).unwrap();
    let text = strict(&folder(dir.path())).unwrap_err().to_string();
    assert!(text.contains("c: class 'c' has no images"), "{text}");
    fs::write(dir.path().join(".DS_Store"), "x").unwrap();
    fs::remove_dir(dir.path().join("c")).unwrap();
    strict(&folder(dir.path())).unwrap();
}

/// A 3x4 JPEG written by another program.
fn jpeg() -> Vec<u8> {
    include_bytes!("small.jpg").to_vec()
}

#[test]
fn jpeg_is_decoded_like_pil() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        fs::create_dir(dir.path().join(class)).unwrap();
        for name in ["1.jpg", "2.JPEG"] {
            fs::write(dir.path().join(class).join(name), jpeg()).unwrap();
        }
    }
    let set = strict(&folder(dir.path())).unwrap();
    assert_eq!(set.shape, Shape::Image(ImageShape { channels: 3, height: 3, width: 4 }));
    // As decoded by PIL, which may round differently by one or two.
    let expected: &[u8] = include_bytes!("small.rgb");
    for (i, &pixel) in set.train.image(0).iter().enumerate() {
        assert!(pixel.abs_diff(expected[i]) <= 3, "{i}: {pixel} {}", expected[i]);
    }
}

/// A JPEG has no checksum: a byte that turns into another valid code gives other pixels, undetectably. Images that do
/// not decode are named, or counted and skipped, and never cached.
#[test]
fn bytes_flipped_inside_a_jpeg() {
    let dir = tempfile::tempdir().unwrap();
    let whole = include_bytes!("waves.jpg");
    for class in ["a", "b"] {
        fs::create_dir(dir.path().join(class)).unwrap();
        for name in ["1.jpg", "2.jpg"] {
            fs::write(dir.path().join(class).join(name), whole).unwrap();
        }
    }
    let (path, cache) = (dir.path().join("b/5.jpg"), dir.path().join(".fedelity-cache"));
    let scan = whole.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 14;
    let (mut refused, mut read_on) = (0, 0);
    for at in (scan..whole.len() - 2).step_by(7) {
        let mut damaged = whole.to_vec();
        for byte in damaged[at..].iter_mut().take(6) {
            *byte ^= 0xff;
        }
        fs::write(&path, &damaged).unwrap();
        match strict(&folder(dir.path())) {
            Ok(set) => {
                read_on += 1;
                assert_eq!(set.train.len() + set.test.len(), 5);
                fs::remove_dir_all(&cache).unwrap();
            }
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.starts_with(&format!("{}: damaged JPEG: ", path.display())), "{text}");
                assert!(!cache.exists(), "a partial cache was written");
                let mut skipped = Skipped::new(true);
                let set = read(&folder(dir.path()), true, &mut skipped).unwrap();
                assert_eq!((skipped.count, set.train.len() + set.test.len()), (1, 4));
                assert!(skipped.note().unwrap().contains("b/5.jpg: damaged JPEG: "), "{:?}", skipped.note());
                assert!(!cache.exists(), "a partial cache was written");
            }
        }
    }
    assert!(refused >= 3, "{refused} refused, {read_on} read");
}

#[test]
fn a_test_folder_without_a_usable_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "train/a/1.png", 1);
    fs::create_dir_all(dir.path().join("test/a")).unwrap();
    fs::write(dir.path().join("test/a/2.jpg"), &jpeg()[..300]).unwrap();
    let text = read(&folder(dir.path()), true, &mut Skipped::new(true)).unwrap_err().to_string();
    assert!(text.ends_with("test: there are no test samples: no image can be used"), "{text}");
}

#[test]
fn what_file_managers_leave_behind_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    for (name, number) in [("a/1.png", 1), ("a/2.png", 2), ("b/3.png", 3), ("b/4.png", 4)] {
        put(dir.path(), name, number);
    }
    fs::create_dir(dir.path().join("__MACOSX")).unwrap();
    for name in [
        "Thumbs.db",
        "a/Thumbs.db",
        "a/desktop.ini",
        ".DS_Store",
        "b/.DS_Store",
        "b/._3.png",
        "b/Icon\r",
        "README.txt",
        "a/LICENSE",
    ] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    let set = strict(&folder(dir.path())).unwrap();
    assert_eq!((set.classes.len(), set.train.len(), set.test.len()), (2, 2, 2));
    // Read whole, for a model that was trained on other images.
    let whole = read(&folder(dir.path()), false, &mut Skipped::default()).unwrap();
    assert_eq!((whole.train.len(), &whole.test.labels[..]), (0, &[0, 0, 1, 1][..]));
    let above = tempfile::tempdir().unwrap();
    fs::rename(dir.path(), above.path().join("test")).unwrap();
    assert_eq!(read(&folder(above.path()), false, &mut Skipped::default()).unwrap().test, whole.test);
    assert!(strict(&folder(above.path())).is_err());
}
