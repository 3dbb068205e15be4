//! Arrays of numpy and IDX files, CIFAR, and files of tokens.

mod common;

use common::{collect, first_error};
use flate2::Compression;
use flate2::write::GzEncoder;
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::sets::{Array, Arrays, Cifar, Number, Tokens};
use gpumem_data::{Dataset, IGNORED, Loader};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

type Bytes = Tensor<u8, (D<2>, D<1>, D<2>, D<3>)>;
type Floats = Tensor<f32, (D<2>, D<1>, D<2>, D<3>)>;
type Labels = Tensor<u32, (D<2>,)>;

fn idx(code: u8, dims: &[u32], elements: &[u8]) -> Vec<u8> {
    let sizes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_be_bytes()).collect();
    [&[0, 0, code, dims.len() as u8], &sizes[..], elements].concat()
}

fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The message of an error without the path, which must be `path`.
fn message<T: std::fmt::Debug>(path: &Path, result: gpumem_data::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.file(), Some(path), "{error}");
    error.to_string().replace(&format!("`{}`", path.display()), "FILE")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn mnist(folder: &Path) {
    let pixels: Vec<u8> = (0..3 * 784).map(|index| (index % 251) as u8).collect();
    write(folder, "train-images-idx3-ubyte", &idx(8, &[3, 28, 28], &pixels));
    write(folder, "train-labels-idx1-ubyte.gz", &packed(&idx(8, &[3], &[7, 0, 9])));
}

#[test]
fn mnist_is_read_packed_or_not() {
    let folder = folder();
    mnist(folder.path());
    let set = Arrays::mnist(folder.path(), true).unwrap();
    assert_eq!(set.len(), 3);
    let mut loader = Loader::<Tensor<u8, (D<2>, D<1>, D<28>, D<28>)>, Labels>::new(set.clone());
    let batches = collect(&mut loader).unwrap();
    assert_eq!(batches[0].0.as_slice()[..3], [0, 1, 2]);
    assert_eq!(batches[1].0.as_slice()[0], (1568 % 251) as u8);
    assert_eq!([batches[0].1.as_slice(), batches[1].1.as_slice()], [[7, 0], [9, IGNORED]]);
    // A network of numbers gets shares of 255, and labels stay labels.
    let mut loader = Loader::<Tensor<f32, (D<2>, D<1>, D<28>, D<28>)>, Labels>::new(set);
    assert_eq!(collect(&mut loader).unwrap()[0].0.as_slice()[51], 0.2);

    let missing = Arrays::mnist(folder.path(), false).unwrap_err().to_string();
    assert!(missing.contains("t10k-images-idx3-ubyte`: cannot be read (No such file"), "{missing}");
    assert!(missing.ends_with("check that it exists and that you may read it"));
}

#[test]
fn damaged_idx_files_are_errors() {
    let folder = folder();
    let no_idx = "FILE: is no IDX file; give one such as `train-images-idx3-ubyte`, or download it again";
    for bytes in [&b""[..], b"\0", b"hello, world", &idx(8, &[], &[1]), &idx(7, &[1], &[1]), b"\0\0\x08\x02\0\0\0\x01"]
    {
        let path = write(folder.path(), "bad", bytes);
        assert_eq!(message(&path, Array::idx(&path)), no_idx);
        let path = write(folder.path(), "bad.gz", &packed(bytes));
        assert_eq!(message(&path, Array::idx(&path)), no_idx);
    }
    for pack in [|bytes: &[u8]| bytes.to_vec(), packed] {
        let path = write(folder.path(), "short", &pack(&idx(8, &[2, 3], &[1; 5])));
        let short =
            "FILE: is damaged: its header promises 6 bytes of elements, but it has only 5; download or write it again";
        assert_eq!(message(&path, Array::idx(&path)), short);
        let path = write(folder.path(), "long", &pack(&idx(8, &[2, 3], &[1; 7])));
        let long =
            "FILE: is damaged: its header promises 6 bytes of elements, but it has more; download or write it again";
        assert_eq!(message(&path, Array::idx(&path)), long);
        let path = write(folder.path(), "huge", &pack(&idx(14, &[u32::MAX, u32::MAX, u32::MAX], &[1; 7])));
        let huge = "FILE: is damaged: an array of shape [4294967295, 4294967295, 4294967295] exceeds all memory; write it again";
        assert_eq!(message(&path, Array::idx(&path)), huge);
    }
    let path = write(folder.path(), "cut.gz", &packed(&idx(8, &[50], &[1; 50]))[..20]);
    assert!(message(&path, Array::idx(&path)).starts_with("FILE: is "));
}

#[test]
fn bombs_take_bounded_memory() {
    let folder = folder();
    // 64 MiB of zeros after a header that promises six bytes, and a header that promises 16 GiB.
    let bomb = [idx(8, &[6], &[]), vec![0; 64 << 20]].concat();
    let path = write(folder.path(), "bomb.gz", &packed(&bomb));
    let error = message(&path, Array::idx(&path));
    assert_eq!(
        error,
        "FILE: is damaged: its header promises 6 bytes of elements, but it has more; download or write it again"
    );
    let path = write(folder.path(), "promise.gz", &packed(&idx(8, &[1 << 17, 1 << 17], &[])));
    let error = "FILE: takes 17179869184 bytes of memory, but at most 4294967296 are allowed; \
        unpack it with `gunzip`: files that are not packed are mapped, not held";
    assert_eq!(message(&path, Array::idx(&path)), error);
}

#[test]
fn numpy_arrays_of_all_types_are_read() {
    let folder = folder();
    let floats = |type_: &str, elements: &[u8]| {
        let path = write(folder.path(), "x.npy", &npy(type_, "2, 2, 3", elements));
        let set = Arrays::new([Array::npy(path).unwrap()], []).unwrap();
        collect(&mut Loader::<Floats, ()>::new(set)).unwrap()[0].0.as_slice().to_vec()
    };
    let numbers: Vec<f32> = (0..12).map(|number| number as f32).collect();
    macro_rules! check {
        ($($type_:literal $rust:ident $bytes:ident),* $(,)?) => {
            $(assert_eq!(floats($type_, &(0..12).flat_map(|number| (number as $rust).$bytes()).collect::<Vec<u8>>()), numbers);)*
        };
    }
    check! {
        "|u1" u8 to_le_bytes, "|i1" i8 to_le_bytes, "<u2" u16 to_le_bytes, ">i2" i16 to_be_bytes, "<u4" u32 to_le_bytes,
        ">i4" i32 to_be_bytes, "<u8" u64 to_le_bytes, "<i8" i64 to_le_bytes, "<f4" f32 to_le_bytes, ">f4" f32 to_be_bytes,
        "<f8" f64 to_le_bytes,
    }
    assert_eq!(floats("|b1", &[1; 12]), [1.0; 12]);

    let labels = |type_: &str, elements: &[u8]| {
        let x = write(folder.path(), "x.npy", &npy("|u1", "2, 2, 3", &[5; 12]));
        let y = write(folder.path(), "y.npy", &npy(type_, "2,", elements));
        let set = Arrays::new([Array::npy(x).unwrap()], [Array::npy(y).unwrap()]).unwrap().classes(3);
        collect(&mut Loader::<Bytes, Labels>::new(set)).map(|batches| batches[0].1.as_slice().to_vec())
    };
    assert_eq!(labels("<i8", &[2_i64.to_le_bytes(), (-100_i64).to_le_bytes()].concat()).unwrap(), [2, IGNORED]);
    for type_ in ["|u1", "|i1"] {
        assert_eq!(labels(type_, &[1, 0]).unwrap(), [1, 0]);
    }
    let path = folder.path().join("y.npy");
    let range =
        "the label 3 is out of range: it must be at least 0 and below 3; correct it, or give the network more classes";
    assert_eq!(message(&path, labels("|u1", &[2, 3])), format!("FILE, sample 1: {range}"));
    assert!(message(&path, labels("|i1", &[0, 255])).contains("the label -1 is out of range"));
    let floats =
        "FILE, sample 0: the network takes u32, but there is f32; store the data as u32, or change the network's type";
    assert_eq!(message(&path, labels("<f4", &[0; 8])), floats);
}

#[test]
fn damaged_numpy_files_are_errors() {
    let folder = folder();
    let no_npy = "FILE: is no array of numpy, or its header is damaged; write it again with `numpy.save`";
    let cut = &npy("<f4", "2, 3", &[0; 24])[..40];
    let version = b"\x93NUMPY\x09\x00\x01\x00 ";
    let long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff ";
    let nested = [b"\x93NUMPY\x01\x00\x10\x27", &[b'('; 10_000][..]].concat();
    for bytes in [&b""[..], b"PK", cut, version, long, &nested, &npy("<f4", "2, x", &[]), &npy("<f4", "-1", &[])] {
        let path = write(folder.path(), "bad.npy", bytes);
        let error = message(&path, Array::npy(&path));
        assert!(error == no_npy || error.contains("type `records`"), "{error}");
    }
    let of = |bytes: &[u8]| {
        let path = write(folder.path(), "bad.npy", bytes);
        message(&path, Array::npy(&path))
    };
    assert_eq!(
        of(&npy("<U3", "2", &[0; 24])),
        "FILE: holds elements of type `<U3`; write it again as numbers, with `array.astype(numpy.float32)`"
    );
    assert_eq!(
        of(&npy("<f4", "", &[0; 4])),
        "FILE: holds a single number; store an array whose first axis numbers the samples"
    );
    assert!(of(&npy("<f4", "2, 3", &[0; 20])).contains("promises 24 bytes of elements, but it has only 20"));
    assert!(of(&npy("<f4", "4294967296, 4294967296", &[])).contains("exceeds all memory"));
    let fortran = String::from_utf8_lossy(&npy("<f4", "2, 3", &[])[10..]).replace("False", "True");
    let fortran = [b"\x93NUMPY\x01\x00", &(fortran.len() as u16).to_le_bytes()[..], fortran.as_bytes()].concat();
    assert_eq!(
        of(&fortran),
        "FILE: is in Fortran's order; write it again from `numpy.ascontiguousarray(array)`, with the samples along the first axis"
    );
    let error = message(folder.path(), Array::npy(folder.path()));
    assert_eq!(error, "FILE: is not a file; give the path of a file");
}

#[test]
fn arrays_must_go_together_and_into_the_network() {
    let folder = folder();
    let x = Array::npy(write(folder.path(), "x.npy", &npy("|u1", "2, 2, 3", &[5; 12]))).unwrap();
    let y = Array::npy(write(folder.path(), "y.npy", &npy("|u1", "3,", &[1; 3]))).unwrap();
    assert_eq!((x.dims(), x.samples(), x.number()), (&[2, 2, 3][..], 2, Number::U8));
    let error = message(y.path(), Arrays::new([x.clone()], [y.clone()]));
    assert_eq!(
        error,
        format!(
            "FILE: has 3 samples, but `{}` has 2; give arrays whose first axes are equally long",
            x.path().display()
        )
    );
    let none = Arrays::new([], []).unwrap_err().to_string();
    assert_eq!(none, "there is no array for the input; give at least one");

    let set = Arrays::new([x.clone()], []).unwrap();
    type Square = Tensor<u8, (D<2>, D<1>, D<3>, D<3>)>;
    let error = collect(&mut Loader::<Square, ()>::new(set.clone()));
    let shape =
        "the network takes [1, 3, 3], but there is [2, 3]; resize or crop the data, or change the network's input";
    assert_eq!(message(x.path(), error), format!("FILE, sample 0: {shape}"));
    let error = first_error(&mut Loader::<Bytes, Labels>::new(set));
    assert!(error.contains("wrote nothing to target 0"), "{error}");
    // The set is empty: its file is named.
    let empty = Array::npy(write(folder.path(), "e.npy", &npy("|u1", "0, 2, 3", &[]))).unwrap();
    let path = empty.path().to_owned();
    let loaded = Loader::<Bytes, ()>::new(Arrays::new([empty], []).unwrap()).batches();
    assert_eq!(message(&path, loaded), "FILE: there are no samples: put files into it, or open another");
}

#[cfg(feature = "npz")]
#[test]
fn archives_of_numpy_are_read() {
    use zip::write::SimpleFileOptions;
    let folder = folder();
    let archive = |name: &str, members: &[(&str, Vec<u8>)]| {
        let path = folder.path().join(name);
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (index, (member, bytes)) in members.iter().enumerate() {
            let methods = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated];
            archive.start_file(*member, SimpleFileOptions::default().compression_method(methods[index % 2])).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
        path
    };
    let good = archive("a.npz", &[("x.npy", npy("|u1", "2, 2, 3", &[5; 12])), ("y.npy", npy("<i8", "2", &[0; 16]))]);
    let set = Arrays::new([Array::npz(&good, "x").unwrap()], [Array::npz(&good, "y").unwrap()]).unwrap();
    let batches = collect(&mut Loader::<Bytes, Labels>::new(set)).unwrap();
    assert_eq!((batches[0].0.as_slice(), batches[0].1.as_slice()), (&[5; 12][..], &[0, 0][..]));
    assert_eq!(message(&good, Array::npz(&good, "z")), "FILE: has no array `z`; take one of `x`, `y`");

    let bomb = archive(
        "b.npz",
        &[
            ("n.npy", npy("|u1", "6", &[])),
            ("z.npy", [npy("|u1", "6", &[]), vec![0; 64 << 20]].concat()),
            ("p.npy", npy("|u1", "131072, 131072", &[])),
            ("bad.npy", b"hello".to_vec()),
        ],
    );
    assert!(message(&bomb, Array::npz(&bomb, "n")).contains("promises 6 bytes of elements, but it has only 0"));
    assert!(message(&bomb, Array::npz(&bomb, "z")).contains("promises 6 bytes of elements, but it has more"));
    let held = "FILE: takes 17179869184 bytes of memory, but at most 4294967296 are allowed; \
        store it with `numpy.save`: `.npy` files are mapped, not held";
    assert_eq!(message(&bomb, Array::npz(&bomb, "p")), held);
    assert!(message(&bomb, Array::npz(&bomb, "bad")).contains("is no array of numpy"));
    let path = write(folder.path(), "no.npz", b"PK\x03\x04 and no more");
    let error = message(&path, Array::npz(&path, "x"));
    assert!(
        error.starts_with("FILE: is no archive of numpy arrays (")
            && error.ends_with("write it again with `numpy.savez`")
    );
}

#[test]
fn cifar_is_read() {
    let folder = folder();
    for number in 1..=5_u8 {
        let record =
            |label: u8| [vec![label], vec![10 * number; 1024], vec![10 * number + 1; 1024], vec![0; 1024]].concat();
        write(folder.path(), &format!("data_batch_{number}.bin"), &[record(number), record(0)].concat());
    }
    let set = Cifar::ten(folder.path(), true).unwrap();
    assert_eq!(set.len(), 10);
    type Images = Tensor<u8, (D<2>, D<3>, D<32>, D<32>)>;
    let batches = collect(&mut Loader::<Images, Labels>::new(set)).unwrap();
    for (number, (images, labels, _)) in (1..).zip(&batches) {
        assert_eq!(
            (images.as_slice()[0], images.as_slice()[1024], labels.as_slice()),
            (10 * number, 10 * number + 1, &[u32::from(number), 0][..])
        );
    }

    write(folder.path(), "train.bin", &[vec![19, 99], vec![7; 3072]].concat());
    let batches = collect(&mut Loader::<Images, Labels>::new(Cifar::hundred(folder.path(), true).unwrap())).unwrap();
    assert_eq!(batches[0].1.as_slice(), [99, IGNORED]);

    let path = write(folder.path(), "test.bin", &[1; 3073]);
    let length = "FILE: has 3073 bytes, which is no multiple of the 3074 of a CIFAR-100 image; download the binary version again";
    assert_eq!(message(&path, Cifar::hundred(folder.path(), false)), length);
    let path = write(folder.path(), "test_batch.bin", &[]);
    let empty = "FILE: there are no samples: the file is empty; download it again";
    assert_eq!(message(&path, Cifar::ten(folder.path(), false)), empty);
    write(folder.path(), "test_batch.bin", &[10; 3073]);
    let range = collect(&mut Loader::<Images, Labels>::new(Cifar::ten(folder.path(), false).unwrap()));
    assert!(message(&path, range).contains("sample 0: the label 10 is out of range"));
    write(folder.path(), "test_batch.bin", &[1; 3073]);
    let shape = collect(&mut Loader::<Bytes, Labels>::new(Cifar::ten(folder.path(), false).unwrap()));
    assert!(message(&path, shape).contains("takes [1, 2, 3], but there is [3, 32, 32]"));
}

#[cfg(feature = "image")]
#[test]
fn arrays_of_images_are_transformed() {
    use gpumem_data::Transforms;
    let folder = folder();
    let pixels: Vec<u8> = (0..24).collect();
    let planes = Array::npy(write(folder.path(), "p.npy", &npy("|u1", "2, 1, 4, 3", &pixels))).unwrap();
    let set = Arrays::new([planes], []).unwrap().transforms(Transforms::new().center_crop(4).resize_to(2, 3));
    assert_eq!(collect(&mut Loader::<Bytes, ()>::new(set)).unwrap()[0].0.as_slice().len(), 12);

    // The channels of a pixel are side by side, as in most files.
    type Colors = Tensor<u8, (D<2>, D<3>, D<2>, D<2>)>;
    let last = Array::npy(write(folder.path(), "l.npy", &npy("|u1", "2, 2, 2, 3", &pixels))).unwrap();
    let set = Arrays::new([last], []).unwrap().channels_last();
    let batches = collect(&mut Loader::<Colors, ()>::new(set)).unwrap();
    assert_eq!(batches[0].0.as_slice()[..12], [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);

    let flat = Array::npy(write(folder.path(), "f.npy", &npy("<f4", "2, 6", &[0; 48]))).unwrap();
    let path = flat.path().to_owned();
    let set = Arrays::new([flat], []).unwrap().channels_last();
    let error = message(&path, collect(&mut Loader::<Bytes, ()>::new(set)));
    assert_eq!(
        error,
        "FILE, sample 0: holds samples of f32 of shape [6], which are no images; give bytes of [N, C, H, W], or leave transforms and `channels_last` out"
    );
}

type Window = Tensor<u32, (D<2>, D<4>)>;

#[test]
fn windows_of_tokens_and_the_tokens_that_follow() {
    let folder = folder();
    let narrow: Vec<u8> = (0..15_u16).flat_map(u16::to_le_bytes).collect();
    let wide: Vec<u8> = (0..15_u32).flat_map(|token| (token + 70_000).to_le_bytes()).collect();
    let narrow = write(folder.path(), "narrow.bin", &narrow);
    let wide = write(folder.path(), "wide.bin", &wide);

    let set = Tokens::u16(&narrow, 4).unwrap().vocabulary(15);
    assert_eq!((set.len(), set.tokens()), (3, 15));
    let batches = collect(&mut Loader::<Window, Window>::new(set)).unwrap();
    assert_eq!(batches[0].0.as_slice(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(batches[0].1.as_slice(), [1, 2, 3, 4, 5, 6, 7, 8]);
    let ignored = [IGNORED; 4];
    assert_eq!(batches[1].1.as_slice(), [&[9, 10, 11, 12][..], &ignored].concat());

    let set = || Tokens::u32(&wide, 4).unwrap().random(400);
    let mut loader = Loader::<Window, Window>::new(set()).shuffle();
    let batches = collect(&mut loader).unwrap();
    let mut firsts: Vec<u32> =
        batches.iter().flat_map(|(input, _, _)| [input.as_slice()[0], input.as_slice()[4]]).collect();
    assert!(batches.iter().all(|(input, target, _)| input.as_slice()[1..4] == target.as_slice()[..3]));
    assert_ne!(collect(&mut loader).unwrap(), batches);
    assert_eq!(collect(&mut Loader::<Window, Window>::new(set()).shuffle().workers(5)).unwrap(), batches);
    firsts.sort_unstable();
    firsts.dedup();
    assert_eq!(firsts, (70_000..70_011).collect::<Vec<_>>());
}

#[test]
fn bad_tokens_are_errors() {
    let folder = folder();
    let path = write(folder.path(), "t.bin", &[0; 7]);
    let odd = "FILE: has 7 bytes, which is no multiple of the 2 of a token; write it again, or open it with tokens of another width";
    assert_eq!(message(&path, Tokens::u16(&path, 2)), odd);
    let path = write(folder.path(), "t.bin", &[0; 8]);
    let few = "FILE: there are no samples: 4 tokens hold no window of 4 and the token after it; take more text, or a shorter window of at least 1";
    assert_eq!(message(&path, Tokens::u16(&path, 4)), few);
    assert!(Tokens::u16(&path, 0).is_err() && Tokens::u16(&path, usize::MAX).is_err());
    let path = write(folder.path(), "t.bin", &[1; 40]);
    let range = collect(&mut Loader::<Window, Window>::new(Tokens::u16(&path, 4).unwrap().vocabulary(257)));
    assert!(message(&path, range).contains("sample 0: the label 257 is out of range"));
    let shape = collect(&mut Loader::<Window, Window>::new(Tokens::u16(&path, 5).unwrap()));
    assert!(message(&path, shape).contains("takes [4], but there is [5]"));
}
