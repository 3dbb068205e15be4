//! The pictures of the guide, made from networks of the zoo and of its tests.

use super::printed;
use std::path::Path;

/// The picture's name, the network in the folder of the zoo, and its batch.
const PICTURES: [(&str, &str, &str); 4] = [
    ("five", "tests/where_memory_goes.rs::Five", "1048576"),
    ("resnet50", "src/resnet.rs::ResNet50", "32"),
    ("gpt2", "src/gpt2.rs::Gpt2", "4"),
    ("unet", "src/unet.rs::UNet", "4"),
];

#[test]
fn the_pictures_of_the_guide_are_those_of_the_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (name, network, batch) in PICTURES {
        let zoo = root.join("gpumem-zoo");
        let arguments = [network, "--batch", batch, "--card", "rtx3090", "-o", "-", "--format", "svg"];
        let picture = printed(&zoo, &arguments);
        let path = root.join(format!("docs/guide/pictures/{name}.svg"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &picture).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(kept == picture, "{} is another picture: run the test with UPDATE_DOCS=1", path.display());
        assert!(picture.len() < 150 << 10, "{name}: {} bytes", picture.len());
    }
}
