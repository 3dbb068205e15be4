//! Files that data sets read. Epochs run through the loader, so that its worker threads are fuzzed too.

use super::{READ, archive, assert_names_a_file, keep, path, seeds, write};
use flate2::Compression;
use flate2::write::GzEncoder;
use gpumem::{D, Tensor};
use gpumem_data::sets::{Array, Arrays, Cifar, ImageFolder, Tokens};
use gpumem_data::{Batched, Dataset, ErrorKind, IGNORED, Loader, Result, Transforms};
use std::io::Write as _;
use zip::CompressionMethod;

type Pixels = Tensor<u8, (D<2>, D<3>, D<4>, D<4>)>;
type Grey = Tensor<u8, (D<2>, D<1>, D<4>, D<4>)>;
type Alpha = Tensor<f32, (D<2>, D<4>, D<4>, D<4>)>;
type Numbers = Tensor<f32, (D<2>, D<3>, D<4>, D<4>)>;
type Labels = Tensor<u32, (D<2>,)>;
type Window = Tensor<u32, (D<2>, D<4>)>;

/// The most batches that are read of an epoch.
const BATCHES: usize = 4;

/// Returns the value, or `None` after an error. Panics at an error that the file cannot cause.
fn checked<T>(result: Result<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::Panic { message } => panic!("a data set panicked: {message}"),
        // An error of a data set and a network that do not match.
        ErrorKind::Setting { .. } => {}
        _ => assert_names_a_file(&error, error.file()),
    }
    None
}

/// Reads some batches in random order, and passes their targets to `check`.
fn epoch<I: Batched, T: Batched>(set: impl Dataset, check: impl Fn(&T)) {
    let mut loader = Loader::<I, T>::new(set).shuffle().workers(1).prefetch(1).pad();
    let Some(epoch) = checked(loader.epoch()) else { return };
    for batch in epoch.take(BATCHES) {
        let Some(batch) = checked(batch) else { return };
        assert!((1..=2).contains(&batch.len), "a batch of 2 has {} samples", batch.len);
        check(&batch.target);
        READ.set(READ.get() + 1);
    }
}

/// Returns a check that every label or token is below `limit`, or left out by the loss.
fn below<const N: usize>(limit: u32) -> impl Fn(&[u32]) {
    move |labels| {
        assert_eq!(labels.len(), N);
        assert!(labels.iter().all(|&label| label < limit || label == IGNORED), "labels below {limit}: {labels:?}");
    }
}

/// Reads an array as images, as numbers and as labels.
fn arrays(array: Result<Array>) {
    let Some(array) = checked(array) else { return };
    let set = || checked(Arrays::new([array.clone()], []));
    let (Some(plain), Some(changed)) = (set(), set()) else { return };
    epoch::<Pixels, ()>(plain.clone(), |()| {});
    epoch::<Numbers, ()>(plain, |()| {});
    epoch::<Pixels, ()>(changed.clone().channels_last(), |()| {});
    epoch::<Pixels, ()>(changed.transforms(Transforms::new().random_resized_crop(4)), |()| {});
    let Some(labels) = checked(Arrays::new([array.clone()], [array])) else { return };
    let check = below::<2>(10);
    epoch::<Tensor<f32, (D<2>, D<1>)>, Labels>(labels.classes(10), |labels| check(labels.as_slice()));
}

/// Reads an array of numpy. After an even first byte, the input is a whole file; after an odd one, a header, a newline, and elements.
pub fn npy(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let file = if kind % 2 == 0 { rest.to_vec() } else { numpy(rest) };
    arrays(Array::npy(write("x.npy", &file)));
}

/// Returns a numpy file of a header and elements, with the right length of the header.
fn numpy(text: &[u8]) -> Vec<u8> {
    let length = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1);
    [b"\x93NUMPY\x01\x00", &(length as u16).to_le_bytes()[..], text].concat()
}

/// Reads an archive of numpy arrays: a whole file, or the contents of the member `x.npy` in the form that [`npy`] takes.
pub fn npz(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let member = || archive(CompressionMethod::Deflated, &[("x.npy", &numpy(rest))]);
    let file = if kind % 2 == 0 { rest.to_vec() } else { member() };
    arrays(Array::npz(write("x.npz", &file), "x"));
}

/// Reads an IDX file, which is compressed after an odd first byte.
pub fn idx(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let file = if kind % 2 == 0 {
        rest.to_vec()
    } else {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(rest).expect("memory");
        packed.finish().expect("memory")
    };
    arrays(Array::idx(write("x-ubyte", &file)));
}

/// Reads a list of images in a folder that does not change.
pub fn csv(data: &[u8]) {
    keep("outside.png", || seeds::png(9));
    let root = keep("pictures/a.png", || seeds::png(1)).with_file_name("");
    keep("pictures/b, c.png", || seeds::png(2));
    keep("pictures/d/e.png", || seeds::png(3));
    let list = write("list.csv", data);
    let Some(set) = checked(ImageFolder::csv(&root, &list)) else { return };
    let root = root.canonicalize().expect("a folder");
    for (path, _) in set.files() {
        assert!(path.canonicalize().is_ok_and(|path| path.starts_with(&root)), "{} lies outside", path.display());
    }
    let Some(set) = checked(set.classes(10)) else { return };
    let check = below::<2>(10);
    epoch::<Pixels, Labels>(set.transforms(Transforms::new().resize_to(4, 4)), |labels| check(labels.as_slice()));
}

/// Reads a PNG or a JPEG. The first byte chooses the channels of the network.
pub fn images(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    write("images/class/a.png", rest);
    let Some(set) = checked(ImageFolder::open(path("images"))) else { return };
    let transforms = Transforms::new().random_resized_crop(6).random_horizontal_flip(0.5).center_crop(4);
    let colors = transforms.clone().color_jitter(0.4, 0.4, 0.4, 0.1);
    let set = set.limit(1 << 20);
    match kind % 3 {
        0 => epoch::<Pixels, Labels>(set.transforms(colors), |_| {}),
        1 => epoch::<Grey, Labels>(set.transforms(colors), |_| {}),
        _ => epoch::<Alpha, Labels>(set.transforms(transforms), |_| {}),
    }
}

/// Reads a file of CIFAR. Bits of the first byte choose 10 or 100 classes, and padding with zeros to a whole image.
pub fn cifar(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let (is_ten, record) = if kind & 2 == 0 { (true, 3073) } else { (false, 3074) };
    let mut file = rest.to_vec();
    if kind & 1 == 1 {
        file.resize(file.len().next_multiple_of(record), 0);
    }
    let path = write(if is_ten { "test_batch.bin" } else { "test.bin" }, &file);
    let folder = path.parent().expect("a folder");
    let set = if is_ten { Cifar::ten(folder, false) } else { Cifar::hundred(folder, false) };
    let Some(set) = checked(set) else { return };
    let check = below::<2>(if is_ten { 10 } else { 100 });
    type Images = Tensor<u8, (D<2>, D<3>, D<32>, D<32>)>;
    epoch::<Images, Labels>(set, |labels| check(labels.as_slice()));
}

/// Reads tokens. Bits of the first byte choose their width, and windows at random places.
pub fn tokens(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let path = write("tokens.bin", rest);
    let set = if kind & 1 == 0 { Tokens::u16(path, 4) } else { Tokens::u32(path, 4) };
    let Some(set) = checked(set) else { return };
    let set = set.vocabulary(300);
    let check = below::<8>(300);
    epoch::<Window, Window>(if kind & 2 == 0 { set } else { set.random(5) }, |window| check(window.as_slice()));
}
