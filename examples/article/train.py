"""A small real PyTorch script: learns clothing categories from class folders of pictures.

Written for the framework containers, and for nothing else: hyperparameters come as arguments, folders as SM_*
variables, metrics go out as lines, and the model is what lies in SM_MODEL_DIR at the end. After each epoch its state
goes to /opt/ml/checkpoints, where the job's checkpoint_s3_uri is, and it goes on from what it finds there; on SIGTERM it
leaves after the epoch that it is in. So a spot job that was interrupted ends with the weights of one that was left alone.
It needs no newer torch than 1.6 and runs in seconds on two cores.
"""
import argparse
import json
import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class SmallNet(nn.Module):
    """Two convolutions and a classifier: enough for 28 x 28 grey pictures."""

    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(),
                                        nn.Linear(64, classes))

    def forward(self, pictures):
        return self.classifier(self.features(pictures))


def load(folder, batch_size, shuffle):
    look = transforms.Compose([transforms.Grayscale(), transforms.Resize((28, 28)),
                               transforms.ToTensor(), transforms.Normalize([0.286], [0.353])])
    pictures = datasets.ImageFolder(folder, look)
    return pictures, DataLoader(pictures, batch_size, shuffle=shuffle)


def accuracy(model, loader, top):
    right = seen = 0
    model.eval()
    with torch.no_grad():
        for pictures, labels in loader:
            best = model(pictures).topk(top, dim=1).indices
            right += (best == labels[:, None]).any(dim=1).sum().item()
            seen += len(labels)
    return right / seen


def save(state, folder):
    """Whole or not at all: under another name first, then renamed. Nothing without the folder: no checkpoint_s3_uri."""
    if os.path.isdir(folder):
        torch.save(state, os.path.join(folder, "state.pth.tmp"))
        os.replace(os.path.join(folder, "state.pth.tmp"), os.path.join(folder, "state.pth"))


def train(arguments):
    asked_to_leave = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_leave.append(number))
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(max(1, int(os.environ.get("SM_NUM_CPUS", "1"))))
    pictures, train_loader = load(arguments.train, arguments.batch_size, shuffle=True)
    _, val_loader = load(arguments.val, 256, shuffle=False)
    print(f"{len(pictures)} pictures of {len(pictures.classes)} classes: {', '.join(pictures.classes)}", flush=True)

    model = SmallNet(len(pictures.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    loss_function = nn.CrossEntropyLoss()
    done, checkpoint = 0, os.path.join(arguments.checkpoints, "state.pth")
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epochs"]
        print(f"resumed after epoch {done}", flush=True)
    for epoch in range(done, arguments.epochs):
        torch.manual_seed(arguments.seed + epoch)  # the order of an epoch is its own
        model.train()
        total = 0.0
        for batch, labels in train_loader:
            optimizer.zero_grad()
            loss = loss_function(model(batch), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch + 1}/{arguments.epochs} train-loss: {total / len(pictures):.4f} "
              f"val-top1: {accuracy(model, val_loader, 1):.4f} val-top3: {accuracy(model, val_loader, 3):.4f}", flush=True)
        save({"epochs": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, arguments.checkpoints)
        if asked_to_leave and epoch + 1 < arguments.epochs:
            sys.exit(0)

    torch.save(model.state_dict(), os.path.join(arguments.model_dir, "model.pth"))
    with open(os.path.join(arguments.model_dir, "classes.json"), "w") as file:
        json.dump(pictures.classes, file)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--checkpoints", default="/opt/ml/checkpoints")
    parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN"))
    parser.add_argument("--val", default=os.environ.get("SM_CHANNEL_VAL"))
    return parser.parse_args()


if __name__ == "__main__":
    train(parse())
