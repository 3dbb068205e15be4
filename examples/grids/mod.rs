//! Images of many small ones.

use std::path::Path;

/// Grey images from 0 to 1 of this height and width, one after another, as a PNG with so many of them in a row.
pub fn write(
    path: &Path,
    images: &[f32],
    [height, width]: [usize; 2],
    columns: usize,
) -> Result<(), png::EncodingError> {
    /// Pixels for each pixel of an image, and dark ones between images.
    const ZOOM: usize = 4;
    const GAP: usize = 4;
    let rows = (images.len() / (height * width)).div_ceil(columns);
    let [tall, wide] = [height * ZOOM + GAP, width * ZOOM + GAP];
    let mut grid = vec![0u8; rows * tall * columns * wide];
    for (index, image) in images.chunks_exact(height * width).enumerate() {
        for at in 0..height * ZOOM * width * ZOOM {
            let (row, column) = (at / (width * ZOOM), at % (width * ZOOM));
            let pixel = image[row / ZOOM * width + column / ZOOM];
            let place = [index / columns * tall + row, index % columns * wide + column];
            grid[place[0] * columns * wide + place[1]] = (pixel.clamp(0.0, 1.0) * 255.0).round() as u8;
        }
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, (columns * wide) as u32, (rows * tall) as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&grid)
}
