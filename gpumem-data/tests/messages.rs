//! Messages of errors that are rare: of headers that promise too much, of archives, and of settings beyond what a machine has.

mod common;

use common::first_error;
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::sets::{Array, Arrays};
use gpumem_data::{Dataset, Draw, Loader, Sample, from_fn};
use std::fs;
use std::path::{Path, PathBuf};

type Input = Tensor<u8, (D<2>, D<3>)>;
type Labels = Tensor<u32, (D<2>,)>;

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A file of numpy with an entry `descr`, as it is written, and dimensions.
fn npy(descr: &str, dims: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({dims}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

#[test]
fn headers_that_promise_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        // 2^60 elements, and as many samples without elements.
        (
            npy("'|u1'", "1152921504606846976,", &[1; 6]),
            "is damaged: its header promises 1152921504606846976 bytes of elements, but it has only 6; download or write it again",
        ),
        (
            npy("'|u1'", "1152921504606846976, 0", &[]),
            "has samples without elements, of shape [1152921504606846976, 0]; write it again with all axes",
        ),
        (
            npy("'<f8'", "3, 1152921504606846976", &[]),
            "is damaged: an array of shape [3, 1152921504606846976] exceeds all memory; write it again",
        ),
        (
            npy("[('x', '<f4')]", "2,", &[0; 8]),
            "holds elements of type `records`; write it again as numbers, with `array.astype(numpy.float32)`",
        ),
    ];
    for (bytes, message) in cases {
        let path = write(folder.path(), "x.npy", &bytes);
        let error = Array::npy(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: {message}", path.display()));
        assert_eq!(format!("{error:?}"), error.to_string(), "what a `main` that returns it prints");
    }
    // No sample at all is an empty set, whatever the other axes are.
    let path = write(folder.path(), "x.npy", &npy("'|u1'", "0, 1152921504606846976", &[]));
    assert_eq!(Array::npy(&path).unwrap().samples(), 0);
}

#[test]
fn packed_files_that_are_damaged() {
    use flate2::write::GzEncoder;
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"\0\0\x08\x01\0\0\0\x02ab").unwrap();
    let mut packed = packed.finish().unwrap();
    let path = write(folder.path(), "good", &packed);
    assert_eq!(Array::idx(path).unwrap().samples(), 2);
    // The checksum is among the last eight bytes.
    let place = packed.len() - 8;
    packed[place] ^= 1;
    let path = write(folder.path(), "checksum", &packed);
    assert_eq!(
        Array::idx(&path).unwrap_err().to_string(),
        format!(
            "`{}`: is damaged (corrupt gzip stream does not have a matching checksum); download or write it again",
            path.display()
        )
    );
}

#[cfg(feature = "npz")]
#[test]
fn members_that_cannot_be_read() {
    use std::io::{Cursor, Write};
    let folder = tempfile::tempdir().unwrap();
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    archive.start_file("x.npy", stored).unwrap();
    archive.write_all(&npy("'|u1'", "3,", &[7; 3])).unwrap();
    let good = archive.finish().unwrap().into_inner();
    let of = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let path = write(folder.path(), "x.npz", &bytes);
        Array::npz(&path, "x").map_err(|error| error.to_string().replace(&format!("`{}`", path.display()), "FILE"))
    };
    assert_eq!(of(|_| {}).unwrap().dims(), [3]);
    // A method of compression that does not exist, in both headers of the member.
    let error = of(|bytes| {
        let central = bytes.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
        (bytes[8], bytes[central + 10]) = (77, 77);
    });
    let error = error.unwrap_err();
    assert!(error.starts_with("FILE: is damaged (") && error.ends_with("); download or write it again"), "{error}");
    // A member whose own header is not where the directory says.
    let error = of(|bytes| bytes[0] = b'Q').unwrap_err();
    assert!(error.starts_with("FILE: is no archive of numpy arrays ("), "{error}");
    assert!(error.ends_with("); write it again with `numpy.savez`"), "{error}");
    // An element other than the one whose checksum is written.
    let error = of(|bytes| {
        let place = bytes.windows(3).position(|part| part == [7; 3]).unwrap();
        bytes[place] = 8;
    });
    assert_eq!(error.unwrap_err(), "FILE: is damaged (Invalid checksum); download or write it again");
}

#[test]
fn labels_that_are_no_classes() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = write(folder.path(), "x.npy", &npy("'|u1'", "2, 3", &[1; 6]));
    let of = |descr: &str, labels: &[u8]| {
        let targets = write(folder.path(), "y.npy", &npy(descr, "2,", labels));
        let set = Arrays::new([Array::npy(&inputs).unwrap()], [Array::npy(&targets).unwrap()]).unwrap();
        first_error(&mut Loader::<Input, Labels>::new(set)).replace(&format!("`{}`", targets.display()), "FILE")
    };
    let message = |value: i64| {
        format!(
            "FILE, sample 0: the label {value} is out of range: it must be at least 0 and below 2147483648; \
            correct it, or give the network more classes"
        )
    };
    // -100 is left out by a loss only where it is written so: its bytes as a `u32` are no label.
    assert_eq!(of("'<u4'", &[0x9c, 0xff, 0xff, 0xff, 0, 0, 0, 0]), message(4_294_967_196));
    assert_eq!(of("'<u8'", &[0xff; 16]), message(i64::MAX));
    assert_eq!(of("'<i8'", &[&(-1_i64).to_le_bytes()[..], &[0; 8]].concat()), message(-1));
}

#[test]
fn more_samples_than_memory() {
    let samples = || from_fn(1 << 60, |_, _, sample| sample.input(0)?.put_bytes(&[0; 3]));
    let message = "there is no memory for the order of 1152921504606846976 samples, 8 bytes each; \
        leave `shuffle` out, or correct `len` of the data set";
    assert_eq!(first_error(&mut Loader::<Input, ()>::new(samples()).shuffle()), message);
    // In order, there is nothing to be held.
    for samples in [1 << 60, usize::MAX] {
        let set = from_fn(samples, |_, _, sample| sample.input(0)?.put_bytes(&[0; 3]));
        assert!(Loader::<Input, ()>::new(set).pad().epoch().unwrap().next().unwrap().is_ok());
    }
}

/// A data set that panics where it should not.
struct Panics {
    in_path: bool,
}

impl Dataset for Panics {
    fn len(&self) -> usize {
        40
    }

    fn get(&self, _: usize, _: &mut Draw, sample: &mut Sample<'_>) -> gpumem_data::Result<()> {
        if self.in_path {
            return sample.input(0)?.put_bytes(&[]);
        }
        std::panic::panic_any(7)
    }

    fn path(&self) -> Option<&Path> {
        assert!(!self.in_path, "no path");
        None
    }
}

#[test]
fn panics_of_every_kind_end_the_epoch() {
    let correct = "correct its `get`, which runs in a worker thread";
    let error = |in_path| first_error(&mut Loader::<Input, ()>::new(Panics { in_path }).workers(3));
    assert_eq!(error(false), format!("sample 0: the data set panicked (\"a panic without a message\"); {correct}"));
    // While an error is given its file: no worker is lost, and none is waited for without end.
    assert_eq!(error(true), format!("the data set panicked (\"no path\"); {correct}"));
}

/// Set in the process that has little memory.
#[cfg(target_os = "linux")]
const CHILD: &str = "GPUMEM_DATA_LITTLE_MEMORY";

#[cfg(target_os = "linux")]
#[test]
fn workers_that_cannot_be_started() {
    use std::process::Command;
    if std::env::var_os(CHILD).is_some() {
        let set = from_fn(40, |_, _, sample| sample.input(0)?.put_bytes(&[0; 3]));
        println!("error: {}", first_error(&mut Loader::<Input, ()>::new(set).workers(4096)));
        return;
    }
    // A stack takes 2 MiB of addresses: 1 GiB is not enough for all.
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1048576 && exec \"$0\" --exact workers_that_cannot_be_started --nocapture"]);
    let output = command.arg(program).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("error: worker ")).unwrap_or_else(|| panic!("{text}")).1;
    assert!(line.contains(" cannot be started ("), "{line}");
    assert!(line.ends_with("); take fewer with `.workers(n)`"), "{line}");
}
