//! Folders and lists of images: what is read, and what is refused.
#![cfg(feature = "image")]

mod common;

use common::{collect, first_error};
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::sets::ImageFolder;
use gpumem_data::{Dataset, ErrorKind, Loader, Transforms};
use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use std::fs;
use std::path::{Path, PathBuf};

type Color = Tensor<u8, (D<2>, D<3>, D<2>, D<2>)>;
type Grey = Tensor<u8, (D<2>, D<1>, D<2>, D<2>)>;
type Labels = Tensor<u32, (D<2>,)>;

fn save(image: impl Into<DynamicImage>, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    image.into().save(&path).unwrap();
    path
}

fn filled(rgb: [u8; 3]) -> RgbImage {
    RgbImage::from_pixel(2, 2, Rgb(rgb))
}

/// The message of an error without the path, which must be `path`.
fn message<T: std::fmt::Debug>(path: &Path, result: gpumem_data::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.file(), Some(path), "{error}");
    error.to_string().replace(&format!("`{}`", path.display()), "FILE")
}

fn read(set: ImageFolder) -> gpumem_data::Result<Vec<(Color, Labels, usize)>> {
    collect(&mut Loader::<Color, Labels>::new(set))
}

#[test]
fn a_folder_has_a_class_for_each_folder_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(filled([1, 2, 3]), root, "dog/b.png");
    save(filled([4, 5, 6]), root, "cat/deep/er/z.PNG");
    save(filled([7, 8, 9]), root, "cat/a.png");
    fs::write(root.join("cat/notes.txt"), "no image").unwrap();
    fs::write(root.join("cat/.hidden.png"), "no image").unwrap();
    fs::create_dir(root.join(".git")).unwrap();

    let set = ImageFolder::open(root).unwrap().classes(2).unwrap();
    assert_eq!((set.names(), set.len()), (&["cat".to_owned(), "dog".to_owned()][..], 3));
    let files: Vec<_> =
        set.files().iter().map(|(path, class)| (path.strip_prefix(root).unwrap().to_str().unwrap(), *class)).collect();
    assert_eq!(files, [("cat/a.png", 0), ("cat/deep/er/z.PNG", 0), ("dog/b.png", 1)]);
    let batches = read(set).unwrap();
    assert_eq!(batches[0].0.as_slice()[..12], [7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9]);
    assert_eq!((batches[0].1.as_slice(), batches[1].1.as_slice()[0], batches[1].2), (&[0, 0][..], 1, 1));
}

#[test]
fn images_become_what_the_network_takes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(GrayImage::from_pixel(2, 2, Luma([9])), root, "a/0.png");
    save(RgbaImage::from_pixel(2, 2, Rgba([10, 20, 30, 40])), root, "a/1.png");
    let wide = image::ImageBuffer::<Rgb<u16>, Vec<u16>>::from_pixel(2, 2, Rgb([0x1234, 0xff00, 0x00ff]));
    save(DynamicImage::ImageRgb16(wide), root, "a/2.png");
    save(filled([200, 200, 200]), root, "a/3.jpg");
    let set = ImageFolder::open(root).unwrap();
    let batches = read(set.clone()).unwrap();
    let first = |batch: usize, sample: usize| {
        let sample = batches[batch].0.samples().nth(sample).unwrap();
        [sample[0], sample[4], sample[8]]
    };
    assert_eq!([first(0, 0), first(0, 1), first(1, 0)], [[9; 3], [10, 20, 30], [0x12, 0xff, 0]]);
    assert!(first(1, 1)[0].abs_diff(200) < 3);
    // PIL: Image.new("RGB", (1, 1), (10, 20, 30)).convert("L") is 18.
    let grey = collect(&mut Loader::<Grey, Labels>::new(set.clone())).unwrap();
    assert_eq!([grey[0].0.as_slice()[0], grey[0].0.as_slice()[4]], [9, 18]);
    type Alpha = Tensor<f32, (D<2>, D<4>, D<2>, D<2>)>;
    let alpha = collect(&mut Loader::<Alpha, Labels>::new(set.clone())).unwrap();
    assert_eq!([alpha[0].0.as_slice()[12], alpha[0].0.as_slice()[16 + 12]], [1.0, 40.0 / 255.0]);
    type Two = Tensor<u8, (D<2>, D<2>, D<2>, D<2>)>;
    assert_eq!(
        first_error(&mut Loader::<Two, Labels>::new(set)).split_once("sample 0: ").unwrap().1,
        "images go into a network of 1, 3 or 4 channels, height and width, but it takes [2, 2, 2]; declare it as `Images<u8, 3, H, W>`"
    );
}

#[test]
fn augmentation_depends_neither_on_workers_nor_on_resuming() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..10_u8 {
        let image = RgbImage::from_fn(9, 7, |x, y| Rgb([25 * x as u8 + number, 30 * y as u8, 20 * number]));
        save(image, folder.path(), &format!("{}/{number}.png", number % 2));
    }
    let transforms = Transforms::new()
        .random_resized_crop(4)
        .random_crop(2, 1)
        .random_horizontal_flip(0.5)
        .color_jitter(0.4, 0.4, 0.4, 0.1);
    let set = ImageFolder::open(folder.path()).unwrap().transforms(transforms);
    let loader = |workers| Loader::<Color, Labels>::new(set.clone()).shuffle().seed(5).workers(workers);
    let mut one = loader(1);
    let epochs = [collect(&mut one).unwrap(), collect(&mut one).unwrap()];
    assert_ne!(epochs[0], epochs[1]);
    for workers in [2, 5] {
        let mut several = loader(workers);
        assert_eq!([collect(&mut several).unwrap(), collect(&mut several).unwrap()], epochs);
        several.resume(gpumem_data::Position { epoch: 1, sample: 4 });
        assert_eq!(collect(&mut several).unwrap(), epochs[1][2..]);
    }
}

#[test]
fn bad_folders_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let no_class = "FILE: there are no samples: put a folder for each class into it, with images in it";
    assert_eq!(message(root, ImageFolder::open(root)), no_class);
    fs::create_dir(root.join("cat")).unwrap();
    let empty = "FILE: there are no samples: put .png or .jpg images into the folder of this class, or remove it";
    assert_eq!(message(&root.join("cat"), ImageFolder::open(root)), empty);
    let missing = root.join("missing");
    assert!(message(&missing, ImageFolder::open(&missing)).starts_with("FILE: cannot be read (No such file"));
    let path = save(filled([0; 3]), root, "cat/a.png");
    let classes = message(&path, ImageFolder::open(root).unwrap().classes(0));
    assert!(classes.starts_with("FILE: the label 0 is out of range"));
    let deep = root.join("cat").join("d/".repeat(40));
    fs::create_dir_all(&deep).unwrap();
    assert!(ImageFolder::open(root).unwrap_err().to_string().ends_with("lies in more than 32 folders; move it up"));
}

#[cfg(unix)]
#[test]
fn links_may_not_lead_out_of_the_folder() {
    use std::os::unix::fs::symlink;
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path();
    let inside = save(filled([1; 3]), root, "cat/a.png");
    let outside = save(filled([1; 3]), elsewhere.path(), "b.png");
    symlink(&inside, root.join("cat/b.png")).unwrap();
    assert_eq!(ImageFolder::open(root).unwrap().len(), 2);
    let link = root.join("cat/c.png");
    symlink(&outside, &link).unwrap();
    let error = format!(
        "FILE: leads out of the folder `{}`; move the file into it, or open a folder that has both",
        root.canonicalize().unwrap().display()
    );
    assert_eq!(message(&link, ImageFolder::open(root)), error);
    fs::remove_file(&link).unwrap();
    let circle = root.join("cat/circle");
    symlink(root, &circle).unwrap();
    let error = "FILE: is a link to a folder; put the folder itself here, or link its images";
    assert_eq!(message(&circle, ImageFolder::open(root)), error);
}

#[test]
fn unreadable_images_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let whole = fs::read(save(RgbImage::from_fn(64, 64, |x, y| Rgb([(x * y) as u8, 3, 9])), root, "a/0.png")).unwrap();
    let path = root.join("a/0.png");
    let set = || ImageFolder::open(root).unwrap().transforms(Transforms::new().resize_to(2, 2));
    let mut flipped = whole.clone();
    flipped[60] ^= 0xff;
    let no_jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\xff\xd9";
    for bytes in [&b""[..], b"hello", &whole[..20], &whole[..whole.len() / 2], &flipped, no_jpeg] {
        fs::write(&path, bytes).unwrap();
        let error = message(&path, read(set()));
        assert!(error.starts_with("FILE, sample 0: is no image that can be read ("), "{error}");
        assert!(error.ends_with("; replace or remove it, or convert it to PNG or JPEG"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let opened = save(filled([0; 3]), root, "a/0.png");
    let gone = set();
    fs::remove_file(&opened).unwrap();
    assert!(message(&path, read(gone)).starts_with("FILE, sample 0: cannot be read (No such file"));
}

/// A decoder of JPEG would fill the rest with what it likes.
#[test]
fn jpegs_that_are_cut_off_are_errors() {
    type Pixels = Tensor<u8, (D<1>, D<3>, D<12>, D<16>)>;
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let path = folder.path().join("a/0.jpg");
    for name in ["jpeg.jpg", "jpeg_progressive.jpg", "jpeg_turned.jpg", "jpeg_cmyk.jpg"] {
        let whole = fs::read(goldens.join(name)).unwrap();
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            collect(&mut Loader::<Pixels, Tensor<u32, (D<1>,)>>::new(ImageFolder::open(folder.path()).unwrap()))
        };
        for length in (4..whole.len()).rev() {
            let error = message(&path, of(&whole[..length]));
            assert_eq!(
                error, "FILE, sample 0: is a JPEG that is cut off; copy or download it again, or remove it",
                "{name} {length}"
            );
        }
        // Bytes after the end are not looked at.
        assert!(of(&[&whole[..], b"more \xff\xd8"].concat()).is_ok(), "{name}");
    }
}

#[test]
fn images_take_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    // 400 bytes or so that would be 12 MB.
    let path = save(RgbImage::new(2000, 2000), folder.path(), "a/0.png");
    let set = || ImageFolder::open(folder.path()).unwrap().transforms(Transforms::new().resize_to(2, 2));
    assert!(read(set()).is_ok());
    let error = message(&path, read(set().limit(1 << 20)));
    let advice = "make the image smaller, or raise the limit of the set with `.limit(bytes)`";
    assert_eq!(
        error,
        format!("FILE, sample 0: takes 12000000 bytes of memory, but at most 1048576 are allowed; {advice}")
    );
    let error = message(&path, read(set().limit(100)));
    assert_eq!(error, format!("FILE, sample 0: takes more than the 100 bytes of memory that are allowed; {advice}"));

    // A header of 65,535 x 65,535 pixels with hardly any data.
    let mut bytes = fs::read(&path).unwrap();
    bytes[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let checksum = crc(&bytes[12..29]).to_be_bytes();
    bytes[29..33].copy_from_slice(&checksum);
    fs::write(&path, bytes).unwrap();
    let error = message(&path, read(set()));
    assert!(error.contains("are allowed") && error.ends_with(advice), "{error}");
}

/// The checksum of a part of a PNG.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[test]
fn images_of_another_size_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(RgbImage::new(3, 2), folder.path(), "a/0.png");
    let set = ImageFolder::open(folder.path()).unwrap();
    let error = message(&path, read(set.clone()));
    let shape =
        "the network takes [3, 2, 2], but there is [3, 2, 3]; resize or crop the data, or change the network's input";
    assert_eq!(error, format!("FILE, sample 0: {shape}"));
    let error = message(&path, read(set.transforms(Transforms::new().random_crop(4, 0))));
    assert!(error.starts_with("FILE, sample 0: is too small to crop 4 x 4 pixels"));
}

#[test]
fn a_csv_lists_files_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("pictures");
    save(filled([1; 3]), &root, "a, b.png");
    save(filled([2; 3]), &root, "c/d.png");
    save(filled([3; 3]), folder.path(), "outside.png");
    let list = folder.path().join("list.csv");
    let open = |text: &str| {
        fs::write(&list, text).unwrap();
        ImageFolder::csv(&root, &list)
    };
    let set = open("\u{feff}file,label\n\"a, b.png\", 2\r\n\nc/d.png,-100\n").unwrap().classes(3).unwrap();
    assert_eq!((set.len(), set.names().len()), (2, 0));
    let batches = read(set).unwrap();
    assert_eq!((batches[0].0.as_slice()[0], batches[0].1.as_slice()), (1, &[2, gpumem_data::IGNORED][..]));
    assert!(
        message(&root.join("a, b.png"), open("\"a, b.png\",2").unwrap().classes(2))
            .contains("the label 2 is out of range")
    );

    let no_lines = "FILE: there are no samples: add lines of a path and a label, such as `images/7.png,2`";
    assert_eq!(message(&list, open("")), no_lines);
    assert_eq!(message(&list, open("file,label\n")), no_lines);
    let hint = "write a path and a label, such as `images/7.png,2`";
    assert_eq!(
        message(&list, open("c/d.png,1\nc/d.png,one")),
        format!("FILE, line 2: has the label `one`, which is no whole number; {hint}")
    );
    assert_eq!(message(&list, open("c/d.png,1\nc/d.png,2\nc/d.png")), format!("FILE, line 3: has 1 fields; {hint}"));
    let range = "FILE, line 1: the label -1 is out of range: it must be at least 0 and below 2147483648; correct it, or give the network more classes";
    assert_eq!(message(&list, open("c/d.png,-1")), range);
    let missing = open("c/d.png,1\nno.png,1").unwrap_err();
    assert_eq!(
        (missing.file(), missing.place()),
        (Some(root.join("no.png").as_path()), Some(gpumem_data::Place::Line(2)))
    );
    for outside in ["../outside.png", folder.path().join("outside.png").to_str().unwrap()] {
        let error = open(&format!("{outside},1")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Outside { .. }), "{error}");
        assert!(error.to_string().contains("outside.png`, line 1: leads out of the folder"), "{error}");
    }
    let nowhere = folder.path().join("nowhere");
    let error = message(&nowhere, ImageFolder::csv(&nowhere, &list));
    assert!(error.starts_with("FILE: cannot be read (No such file"), "{error}");
    let unreadable: [(&[u8], _, _); 4] = [
        (b"\xff\xfe,1\n", 1, "it is not UTF-8"),
        // A character that two fields share.
        (b"c/d.png,1\nc/d.png\xc3,\xa4\n", 2, "it is not UTF-8"),
        (
            &[&b"c/d.png,1\n\""[..], &[b'x'; 20_000]].concat(),
            2,
            "a row has more than 16384 bytes, or a quotation mark is not closed",
        ),
        (&[b','; 100], 1, "a row has more than 64 fields"),
    ];
    for (bytes, line, what) in unreadable {
        fs::write(&list, bytes).unwrap();
        let error = message(&list, ImageFolder::csv(&root, &list));
        let advice = "save it as CSV in UTF-8 with a comma between fields";
        assert_eq!(error, format!("FILE, line {line}: cannot be read ({what}); {advice}"));
    }
}

#[test]
fn a_list_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    fs::File::create(&list).unwrap().set_len(1 << 30).unwrap();
    let error = "FILE: takes 1073741824 bytes of memory, but at most 268435456 are allowed; split the list, and open its parts one after the other";
    assert_eq!(message(&list, ImageFolder::csv(folder.path(), &list)), error);
}

#[test]
fn pipes_are_not_read() {
    // A device that never ends.
    let error = ImageFolder::csv("/dev", "/dev/zero").unwrap_err().to_string();
    assert_eq!(error, "`/dev/zero`: is not a file; give the path of a file");
    let _ = save(filled([0; 3]), tempfile::tempdir().unwrap().path(), "a.png");
    assert_eq!(ImageFormat::from_path("a.png").unwrap(), ImageFormat::Png);
}

/// Every kind of PNG and JPEG has the pixels that PIL's `convert("RGB")` has: see `scripts/goldens/images.py`.
#[test]
fn pixels_are_those_of_pil() {
    type Pixels = Tensor<u8, (D<1>, D<3>, D<12>, D<16>)>;
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let mut names: Vec<String> =
        fs::read_dir(&goldens).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".rgb"));
    assert_eq!(names.len(), 16);
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = goldens.join(&name);
        fs::copy(&file, folder.path().join("a").join(&name)).unwrap();
        let set = ImageFolder::open(folder.path()).unwrap();
        let batches = collect(&mut Loader::<Pixels, Tensor<u32, (D<1>,)>>::new(set)).unwrap();
        let planes = batches[0].0.as_slice();
        let expected = fs::read(file.with_extension("rgb")).unwrap();
        assert_eq!((planes.len(), expected.len()), (576, 576));
        // Decoders of JPEG round differently.
        let tolerance = if name.ends_with("jpg") { 3 } else { 0 };
        for (index, &byte) in planes.iter().enumerate() {
            let pixel = expected[index % 192 * 3 + index / 192];
            assert!(byte.abs_diff(pixel) <= tolerance, "{name}: {byte} and {pixel} at {index}");
        }
    }
}
