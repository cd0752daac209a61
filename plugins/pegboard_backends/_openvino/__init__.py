"""What the OpenVINO backends share. Importing any of it imports no OpenVINO."""
