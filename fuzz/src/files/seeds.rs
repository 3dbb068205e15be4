//! Small valid files with which the targets of this folder begin. Each starts with the byte that its target expects.

use super::{archive, path, weights};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use gpumem_weights::NetWeights;
use image::{ColorType, DynamicImage, ImageEncoder, ImageFormat};
use std::io::{Cursor, Read as _, Write as _};
use zip::{CompressionMethod, ZipArchive};

/// Returns a file after the byte that chooses how its target reads it.
fn with(kind: u8, file: impl AsRef<[u8]>) -> Vec<u8> {
    [&[kind], file.as_ref()].concat()
}

/// Returns the header of a numpy array and, after it, its elements.
fn array(descr: &str, dims: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}\n");
    [header.as_bytes(), elements].concat()
}

/// Returns numpy arrays without the bytes that precede their headers.
fn arrays() -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..144).collect();
    let halves: Vec<u8> = (0..96_u16).flat_map(|number| number.to_be_bytes()).collect();
    let floats: Vec<u8> = (0..96_u16).flat_map(|number| (f32::from(number) / 7.0).to_le_bytes()).collect();
    let labels: Vec<u8> = [3_i64, 0, 9, -100].iter().flat_map(|label| label.to_le_bytes()).collect();
    vec![
        array("|u1", "3, 3, 4, 4", &bytes),
        array("|u1", "2, 4, 4, 3", &bytes[..96]),
        array(">i2", "2, 3, 4, 4", &halves),
        array("<f4", "2, 3, 4, 4", &floats),
        array("<i8", "4,", &labels),
        array("|b1", "3, 1", &[1, 0, 1]),
    ]
}

pub fn npy() -> Vec<Vec<u8>> {
    let whole = |text: &Vec<u8>| {
        let length = text.iter().position(|&byte| byte == b'\n').expect("a header") as u16 + 1;
        with(0, [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], text].concat())
    };
    arrays().iter().flat_map(|text| [whole(text), with(1, text)]).collect()
}

pub fn npz() -> Vec<Vec<u8>> {
    let members = npy();
    let members: Vec<&[u8]> = members.iter().filter(|seed| seed[0] == 0).map(|seed| &seed[1..]).collect();
    let methods = [CompressionMethod::Stored, CompressionMethod::Deflated];
    let whole = methods.map(|method| with(0, archive(method, &[("x.npy", members[0]), ("y.npy", members[4])])));
    whole.into_iter().chain(arrays().iter().map(|text| with(1, text))).collect()
}

pub fn idx() -> Vec<Vec<u8>> {
    let file = |code: u8, dims: &[u32], elements: &[u8]| {
        let sizes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_be_bytes()).collect();
        [&[0, 0, code, dims.len() as u8], &sizes[..], elements].concat()
    };
    let elements: Vec<u8> = (0..192).collect();
    let files = [
        file(8, &[2, 3, 4, 4], &elements[..96]),
        file(8, &[3], &[1, 9, 0]),
        file(0x0b, &[2, 3, 4, 4], &elements),
        file(0x0d, &[2, 3, 4, 4], &[0x3f, 0x80, 0, 0, 0x7f, 0xc0, 0, 0].repeat(48)),
    ];
    files.iter().flat_map(|file| [with(0, file), with(1, file)]).collect()
}

pub fn csv() -> Vec<Vec<u8>> {
    let texts = [
        "file,label\na.png,2\n\"b, c.png\",0\nd/e.png,9\n",
        "a.png,1\r\n\r\n d/e.png , -100\r\n",
        "../pictures/a.png,3\nd/../a.png,4\n",
        "../outside.png,1\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Returns a PNG of 8 x 6 pixels.
pub fn png(number: u8) -> Vec<u8> {
    encoded(ImageFormat::Png, &pixels(number))
}

fn pixels(number: u8) -> DynamicImage {
    image::RgbImage::from_fn(8, 6, |x, y| image::Rgb([30 * x as u8, 40 * y as u8, number])).into()
}

fn encoded(format: ImageFormat, image: &DynamicImage) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).expect("an image");
    file.into_inner()
}

/// Returns a PNG of 8 x 6 pixels of 4 bits: colours of a palette, some of them transparent.
fn palette() -> Vec<u8> {
    let part = |name: &[u8; 4], bytes: &[u8]| {
        let named = [&name[..], bytes].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&named);
        [&(bytes.len() as u32).to_be_bytes()[..], &named, &crc.sum().to_be_bytes()].concat()
    };
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::fast());
    (0..6).for_each(|row| rows.write_all(&[0, 0x01, 0x23, 0x10, 0x11 * (row % 4)]).expect("memory"));
    let rows = rows.finish().expect("memory");
    let colors: Vec<u8> = (0..12).map(|byte| 20 * byte).collect();
    let header = [0, 0, 0, 8, 0, 0, 0, 6, 4, 3, 0, 0, 0];
    let parts = [part(b"IHDR", &header), part(b"PLTE", &colors), part(b"tRNS", &[0, 128]), part(b"IDAT", &rows)];
    [b"\x89PNG\r\n\x1a\n", &parts.concat()[..], &part(b"IEND", &[])].concat()
}

pub fn images() -> Vec<Vec<u8>> {
    let image = pixels(200);
    let mut grey = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut grey, 70);
    encoder.write_image(image.to_luma8().as_raw(), 8, 6, ColorType::L8.into()).expect("an image");
    let wide = DynamicImage::from(image.to_rgb16());
    let alpha = DynamicImage::from(image.to_luma_alpha8());
    let files = [
        png(7),
        palette(),
        encoded(ImageFormat::Png, &wide),
        encoded(ImageFormat::Png, &alpha),
        encoded(ImageFormat::Jpeg, &image),
        grey,
    ];
    files.iter().zip((0..3).cycle()).map(|(file, kind)| with(kind, file)).collect()
}

pub fn cifar() -> Vec<Vec<u8>> {
    let image = |labels: &[u8]| [labels, &[7; 3072]].concat();
    vec![with(0, image(&[3])), with(1, image(&[9])), with(3, image(&[19, 99]))]
}

pub fn tokens() -> Vec<Vec<u8>> {
    let narrow: Vec<u8> = (250..290_u16).flat_map(u16::to_le_bytes).collect();
    let wide: Vec<u8> = (250..290_u32).flat_map(u32::to_le_bytes).collect();
    vec![with(0, &narrow), with(1, &wide), with(2, &narrow), with(3, &wide)]
}

pub fn shards() -> Vec<Vec<u8>> {
    let map = r#""a.weight":"one.safetensors","a.bias":"one.safetensors","b.weight":"two.safetensors""#;
    let whole = format!(r#"{{"metadata":{{"total_size":92}},"weight_map":{{{map},"b.bias":"two.safetensors"}}}}"#);
    let outside = r#"{"weight_map":{"a.weight":"../secret.safetensors","b.bias":"two.safetensors"}}"#;
    vec![with(0, &whole), with(1, format!(r#"{{"weight_map":{{{map}}}}}"#)), with(1, outside)]
}

pub fn safetensors() -> Vec<Vec<u8>> {
    let saved = path("saved.safetensors");
    weights::net().save_weights(&saved).expect("space for temporary files");
    let saved = std::fs::read(&saved).expect("a file that was just written");
    let end = 8 + u64::from_le_bytes(saved[..8].try_into().expect("eight bytes")) as usize;
    let apart = [&saved[8..end], &[0], &saved[end..]].concat();
    let types = r#"{"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F16","shape":[3,4],"data_offsets":[0,24]},
        "a.bias":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},"b.weight":{"dtype":"F64","shape":[2,3],"data_offsets":[30,78]},
        "b.bias":{"dtype":"I64","shape":[2],"data_offsets":[78,94]}}"#;
    let types = [types.as_bytes(), &[0; 95]].concat();
    vec![with(0, &saved), with(1, &apart), with(3, types)]
}

/// Returns the files of the folder `seeds/pickle`, and the pickles in them.
pub fn pickle() -> Vec<Vec<u8>> {
    let files = crate::seeds::written("pickle");
    let pickle = |file: &Vec<u8>| {
        let mut archive = ZipArchive::new(Cursor::new(file)).expect("an archive");
        let name =
            archive.file_names().flatten().find(|name| name.ends_with("data.pkl")).expect("a pickle").to_string();
        let mut pickle = Vec::new();
        archive.by_name(&name).expect("a pickle").read_to_end(&mut pickle).expect("a pickle");
        pickle
    };
    let pickles = files.iter().map(|file| with(3, pickle(file)));
    files.iter().map(|file| with(0, file)).chain(pickles).collect()
}

/// Returns models of a few operations as files, and their documents.
pub fn pt2() -> Vec<Vec<u8>> {
    let files = models("models/operations", "pt2");
    let document = |file: &Vec<u8>| {
        let mut archive = ZipArchive::new(Cursor::new(file)).expect("an archive");
        let names = archive.file_names().flatten().find(|name| name.ends_with("models/model.json"));
        let name = names.expect("a document").to_string();
        let mut document = Vec::new();
        archive.by_name(&name).expect("a document").read_to_end(&mut document).expect("a document");
        document
    };
    let documents = files.iter().map(|file| with(1, document(file)));
    files.iter().map(|file| with(0, file)).chain(documents).collect()
}

pub fn onnx() -> Vec<Vec<u8>> {
    models("onnx", "onnx")
}

/// Returns the shorter half of the models that tests read.
fn models(folder: &str, end: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpumem-import/tests").join(folder);
    let mut files: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .expect("the folder of models")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|other| other == end))
        .map(|path| std::fs::read(path).expect("a model"))
        .collect();
    files.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    files.truncate(files.len().div_ceil(2));
    files
}

pub fn states() -> Vec<Vec<u8>> {
    let [lines, tensors] = super::states::saved();
    let file = [&lines[..], b"\0", &tensors].concat();
    [0, 2, 3, 6, 7].map(|kind| with(kind, &file)).to_vec()
}

pub fn events() -> Vec<Vec<u8>> {
    let call = |kind: u8, name: &str, numbers: &[u8]| {
        // The low half of the byte is the length of the name.
        let length = (numbers.len() / 16 * 16) as u8 + name.len() as u8;
        [&[kind, length], name.as_bytes(), numbers].concat()
    };
    let floats: Vec<u8> = [0.5_f32, -1.0, f32::NAN, f32::INFINITY, 3e38].iter().flat_map(|x| x.to_le_bytes()).collect();
    let picture = [4, 3, 3].into_iter().chain(0..29).collect::<Vec<u8>>();
    let calls = [call(0, "loss", &floats), call(1, "weight", &floats), call(2, "", &[]), call(3, "image", &picture)];
    calls.iter().cloned().chain([calls.concat()]).collect()
}
